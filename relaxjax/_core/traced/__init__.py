"""What is read from traced programs, and what is marked in them."""

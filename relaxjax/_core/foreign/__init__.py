"""What comes from outside: JSON of others, its types, and bounds of numbers."""

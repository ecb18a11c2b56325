"""What a relaxation costs in quality."""

"""What travels inside a split model."""

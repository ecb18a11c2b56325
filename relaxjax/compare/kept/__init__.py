"""Records of runs, and what they say in numbers."""

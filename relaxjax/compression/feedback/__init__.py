"""What a code loses, and how it returns."""

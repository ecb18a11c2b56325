"""A run once more: its merges, its steps, all of it in one program."""

"""Plans beside a run: which relaxation to take from here on, and how to take it."""

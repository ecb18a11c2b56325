"""Where files of a run lie, and how they are read."""

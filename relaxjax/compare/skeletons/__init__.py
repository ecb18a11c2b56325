"""Files to start from: a task."""

"""Parts of the params or of the state meet, each at its own time."""

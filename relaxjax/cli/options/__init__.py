"""Options of the larger commands, each declared once: type, default and help."""

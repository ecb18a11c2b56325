"""Files and arguments that nobody meant: an error by name, or the right answer."""

"""The graph of one worker, from a function or a compiled program, and its times."""

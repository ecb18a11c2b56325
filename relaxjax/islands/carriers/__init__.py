"""Where files of a run lie, and how they are read."""

__all__: list[str] = []

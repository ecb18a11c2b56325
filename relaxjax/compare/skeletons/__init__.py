"""Files to start from: a task."""

__all__: list[str] = []

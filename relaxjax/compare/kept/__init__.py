"""Records of runs, and what they say in numbers."""

__all__: list[str] = []

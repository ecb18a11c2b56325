"""Compressors, from one array to a payload and back. None has landed yet."""

__all__: list[str] = []

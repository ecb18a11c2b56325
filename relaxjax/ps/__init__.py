"""Emulated parameter servers. None has landed yet."""

__all__: list[str] = []

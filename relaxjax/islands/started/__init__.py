"""Processes of islands, started and watched by a command."""

__all__: list[str] = []

"""Traced transformations and steps, followed before they are trusted."""

__all__: list[str] = []

"""Means of gradients, exact or in codes."""

__all__: list[str] = []

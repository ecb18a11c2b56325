"""Means of gradients as products of small factors."""

__all__: list[str] = []

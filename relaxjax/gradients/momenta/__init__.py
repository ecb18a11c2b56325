"""Momenta that are kept by each worker and sent in part."""

__all__: list[str] = []

"""Optimizers that send their own momentum in few bits."""

__all__: list[str] = []

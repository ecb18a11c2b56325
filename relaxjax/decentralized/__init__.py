"""After the optimizer: models averaged with a few neighbors, not with all."""

__all__: list[str] = []

"""Words that every room uses; imports jax, numpy and optax alone."""

__all__: list[str] = []

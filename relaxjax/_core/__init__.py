"""What every room uses; imports nothing but jax, numpy and optax."""

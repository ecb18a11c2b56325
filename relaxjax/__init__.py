"""Relaxed collectives for JAX: send less, later, to fewer peers, or in a better order.

Every relaxation is an optax-style gradient transformation over a named axis.
"""

__version__ = "0.1.0"

__all__ = ["__version__"]

"""Optimizers that send their own momentum in few bits."""

"""Means of gradients, exact or in codes."""

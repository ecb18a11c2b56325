"""Means of gradients as products of small factors."""

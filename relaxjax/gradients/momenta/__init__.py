"""Momenta that are kept by each worker and sent in part."""

"""Meetings whose result arrives later, and outer optimizers that know it."""

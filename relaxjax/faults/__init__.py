"""Faults: non-finite gradients, absent workers, replicas that are not equal."""

__all__: list[str] = []

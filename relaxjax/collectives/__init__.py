"""Collectives on one array over a named axis; they know nothing of optimizers."""

from relaxjax.collectives._ring import ring_all_reduce, ring_wire_bytes

__all__ = ["ring_all_reduce", "ring_wire_bytes"]

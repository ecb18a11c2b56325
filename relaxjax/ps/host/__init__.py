"""Parameter servers and workers as processes, for an order that can be felt.

Parameters live in the memory of server processes and are pulled in an order that the
servers keep, while the worker computes the layers whose parameters have come.
"""

from relaxjax.hosts import Loopback, Namespaces, Place
from relaxjax.ps.host._fleet import Fleet
from relaxjax.ps.host._graph import measured_graph, placed
from relaxjax.ps.host._message import TransferError
from relaxjax.ps.host._model import Layer, Model
from relaxjax.ps.host._records import Event, Work
from relaxjax.ps.host._step import Step, timeline

__all__ = [
    "Event",
    "Fleet",
    "Layer",
    "Loopback",
    "Model",
    "Namespaces",
    "Place",
    "Step",
    "TransferError",
    "Work",
    "measured_graph",
    "placed",
    "timeline",
]

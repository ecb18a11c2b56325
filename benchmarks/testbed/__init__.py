"""Parameter servers and workers as processes, for an order that can be felt.

Parameters live in the memory of server processes and are pulled in an order that the
servers keep, while the worker computes the layers whose parameters have arrived.
"""

from benchmarks.testbed.fleet import Fleet
from benchmarks.testbed.graph import measured_graph, placed
from benchmarks.testbed.message import TransferError
from benchmarks.testbed.model import Layer, LayerModel
from benchmarks.testbed.records import Event, Work
from benchmarks.testbed.step import Step, timeline
from relaxjax.hosts import Loopback, Namespaces, Place

__all__ = [
    "Event",
    "Fleet",
    "Layer",
    "LayerModel",
    "Loopback",
    "Namespaces",
    "Place",
    "Step",
    "TransferError",
    "Work",
    "measured_graph",
    "placed",
    "timeline",
]

# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax._core._buckets import Bucket as Bucket
from relaxjax._core._buckets import Segment as Segment
from relaxjax._core._buckets import plan_buckets as plan_buckets
from relaxjax._core._buckets import plan_groups as plan_groups
from relaxjax._core._sending_order import sent_first as sent_first
from relaxjax.schedule.graphs._graph import Graph as Graph
from relaxjax.schedule.graphs._hardware import Cost as Cost
from relaxjax.schedule.graphs._hardware import Device as Device
from relaxjax.schedule.graphs._hardware import Link as Link
from relaxjax.schedule.graphs._oracle import Estimate as Estimate
from relaxjax.schedule.graphs._oracle import Oracle as Oracle
from relaxjax.schedule.graphs._oracle import analytic as analytic
from relaxjax.schedule.graphs._oracle import given as given
from relaxjax.schedule.graphs._oracle import measured as measured
from relaxjax.schedule.graphs._trace import backward_order as backward_order
from relaxjax.schedule.orders._baselines import fifo as fifo
from relaxjax.schedule.orders._baselines import layer_order as layer_order
from relaxjax.schedule.orders._baselines import random_order as random_order
from relaxjax.schedule.orders._baselines import smallest_first as smallest_first
from relaxjax.schedule.orders._best import best as best
from relaxjax.schedule.orders._bounds import Bounds as Bounds
from relaxjax.schedule.orders._bounds import bounds as bounds
from relaxjax.schedule.orders._bounds import efficiency as efficiency
from relaxjax.schedule.orders._bounds import gap as gap
from relaxjax.schedule.orders._bounds import lower_bound as lower_bound
from relaxjax.schedule.orders._bounds import speedup_potential as speedup_potential
from relaxjax.schedule.orders._condense import condensed as condensed
from relaxjax.schedule.orders._families import random_graph as random_graph
from relaxjax.schedule.orders._local_search import local_search as local_search
from relaxjax.schedule.orders._makespan import makespan as makespan
from relaxjax.schedule.orders._optimum import optimum as optimum
from relaxjax.schedule.orders._properties import Properties as Properties
from relaxjax.schedule.orders._properties import properties as properties
from relaxjax.schedule.orders._series_parallel import (
    series_parallel_order as series_parallel_order,
)
from relaxjax.schedule.orders._tictac import priorities_tic as priorities_tic
from relaxjax.schedule.orders._tictac import tac as tac
from relaxjax.schedule.orders._tictac import tic as tic
from relaxjax.schedule.replayed._chakra import chakra as chakra
from relaxjax.schedule.replayed._replay import Replay as Replay
from relaxjax.schedule.replayed._replay import Transfer as Transfer
from relaxjax.schedule.replayed._replay import replay as replay
from relaxjax.schedule.simulator._cluster import Cluster as Cluster
from relaxjax.schedule.simulator._cluster import Stragglers as Stragglers
from relaxjax.schedule.simulator._cluster import Workers as Workers
from relaxjax.schedule.simulator._engine import Span as Span
from relaxjax.schedule.simulator._mg_wfbp import mg_wfbp as mg_wfbp
from relaxjax.schedule.simulator._policies import Policy as Policy
from relaxjax.schedule.simulator._policies import byte_scheduler as byte_scheduler
from relaxjax.schedule.simulator._policies import dear as dear
from relaxjax.schedule.simulator._policies import ordered as ordered
from relaxjax.schedule.simulator._policies import p3 as p3
from relaxjax.schedule.simulator._policies import unordered as unordered
from relaxjax.schedule.simulator._policies import wait_free as wait_free
from relaxjax.schedule.simulator._record import record as record
from relaxjax.schedule.simulator._simulate import simulate as simulate
from relaxjax.schedule.simulator._timeline import Timeline as Timeline

__all__ = [
    "Bounds",
    "Bucket",
    "Cluster",
    "Cost",
    "Device",
    "Estimate",
    "Graph",
    "Link",
    "Oracle",
    "Policy",
    "Properties",
    "Replay",
    "Segment",
    "Span",
    "Stragglers",
    "Timeline",
    "Transfer",
    "Workers",
    "analytic",
    "backward_order",
    "best",
    "bounds",
    "byte_scheduler",
    "chakra",
    "condensed",
    "dear",
    "efficiency",
    "fifo",
    "gap",
    "given",
    "layer_order",
    "local_search",
    "lower_bound",
    "makespan",
    "measured",
    "mg_wfbp",
    "optimum",
    "ordered",
    "p3",
    "plan_buckets",
    "plan_groups",
    "priorities_tic",
    "properties",
    "random_graph",
    "random_order",
    "record",
    "replay",
    "sent_first",
    "series_parallel_order",
    "simulate",
    "smallest_first",
    "speedup_potential",
    "tac",
    "tic",
    "unordered",
    "wait_free",
]

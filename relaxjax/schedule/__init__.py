"""Plans and predictions in plain Python: no traced value ever enters here."""

from relaxjax._core._buckets import (
    Bucket,
    Segment,
    plan_buckets,
    plan_groups,
    sent_first,
)
from relaxjax.schedule._baselines import fifo, layer_order, random_order, smallest_first
from relaxjax.schedule._best import best
from relaxjax.schedule._bounds import (
    Bounds,
    bounds,
    efficiency,
    gap,
    lower_bound,
    speedup_potential,
)
from relaxjax.schedule._cluster import Cluster, Stragglers, Workers
from relaxjax.schedule._condense import condensed
from relaxjax.schedule._engine import Span
from relaxjax.schedule._families import random_graph
from relaxjax.schedule._graph import Graph
from relaxjax.schedule._hardware import Cost, Device, Link
from relaxjax.schedule._local_search import local_search
from relaxjax.schedule._makespan import makespan
from relaxjax.schedule._mg_wfbp import mg_wfbp
from relaxjax.schedule._optimum import optimum
from relaxjax.schedule._oracle import Estimate, Oracle, analytic, given, measured
from relaxjax.schedule._policies import (
    Policy,
    byte_scheduler,
    dear,
    ordered,
    p3,
    unordered,
    wait_free,
)
from relaxjax.schedule._properties import Properties, properties
from relaxjax.schedule._record import record
from relaxjax.schedule._replay import Replay, Transfer, replay
from relaxjax.schedule._series_parallel import series_parallel_order
from relaxjax.schedule._simulate import simulate
from relaxjax.schedule._tac import tac
from relaxjax.schedule._tic import priorities_tic, tic
from relaxjax.schedule._timeline import Timeline
from relaxjax.schedule._trace import backward_order

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

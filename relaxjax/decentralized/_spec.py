"""The arguments that all decentralized methods have, checked."""

import warnings
from typing import Any

from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core._sending_order import check_bucket_bytes
from relaxjax.decentralized._round import GossipSpec
from relaxjax.periods import Period, rounds
from relaxjax.topology import Topology
from relaxjax.topology import mixes as are_mixed

_EQUAL = "equal models as they are (a row"


def gossip_spec(
    caller: str,
    axis_name: AxisName,
    topology: Topology,
    every: Period,
    bucket_bytes: int,
    specs: Any,
    *,
    doubly: bool = True,
    mixes: bool = True,
    name: str = "every",
) -> GossipSpec:
    """How a method gossips, checked.

    With `doubly` its weights must keep equal models; if it `mixes` by them, and they
    never lead to one mean, it is warned of. Errors call `every` by its `name`.
    """
    if len(axes_of(axis_name)) > 2:
        raise TypeError(
            f"{caller}: axis_name={axis_name!r} must be one axis, or two: (outer, "
            "inner), of which the inner one takes the mean"
        )
    if not isinstance(topology, Topology):
        raise TypeError(
            f"{caller}: topology={topology!r} must be one of relaxjax.topology, such "
            "as relaxjax.topology.ring(8), or from_matrix(w)"
        )
    turns = rounds(caller, name, every, topology.period)
    check_bucket_bytes(bucket_bytes)
    if doubly and not topology.is_doubly_stochastic:
        rows = topology.is_row_stochastic
        stays = "the workers' mean as it is (a column" if rows else _EQUAL
        remedy = "" if rows else "relaxjax.push_sum, or "
        raise ValueError(
            f"{caller}: the topology {topology.name!r} does not leave {stays} does not "
            f"sum to 1); use {remedy}weights of relaxjax.topology.metropolis"
        )
    if mixes and not are_mixed(topology):
        warnings.warn(
            f"{caller}: with the topology {topology.name!r} the workers never come to "
            "one mean: it is not connected, or all that workers have goes to and fro. "
            "Add links, or keep a part at each worker: relaxjax.topology.lazy(graph)",
            stacklevel=3,
        )
    return GossipSpec(caller, axis_name, topology, turns, bucket_bytes, specs)


def require_fixed(spec: GossipSpec, why: str) -> None:
    """Refuses a mean inside hosts, and graphs that change, and says `why`.

    For methods that remember their neighbors.
    """
    names = axes_of(spec.axis_name)
    if len(names) > 1:
        outer, inner = names
        raise TypeError(
            f"{spec.caller}: axis_name={names} must be one axis. Inside hosts, "
            f"average gradients: optax.chain(relaxjax.all_reduce({inner!r}), "
            f"optimizer, relaxjax.{spec.caller}({outer!r}, topology, ...))"
        )
    graph = spec.topology
    if graph.period > 1:
        raise ValueError(
            f"{spec.caller}: the topology {graph.name!r} has {graph.period} rounds,"
            f" and {why} needs one that stays, such as relaxjax.topology.ring"
        )

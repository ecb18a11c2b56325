"""From a ranking to a transformation, without pasting a line."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import optax

from relaxjax._core._axis import AxisName, axes_of
from relaxjax._core._checks import require_transformation
from relaxjax._core._relaxation import Training
from relaxjax._names import parse
from relaxjax.merges import Rule
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network
from relaxjax.plan._rank import rank
from relaxjax.plan._ranking import Ranking, Row, ranking


def auto(
    axis_name: AxisName,
    optimizer: optax.GradientTransformation,
    params: optax.Params,
    *,
    network: Network,
    compute: float,
    criterion: str = "fastest",
    quality: str = "equal",
    memory: float | None = None,
    bucket_bytes: int | Sequence[int] | None = None,
    merge: Rule | None = None,
) -> optax.GradientTransformationExtraArgs:
    """The relaxation that pays for this model on this network, with the optimizer.

    Experimental: this may change in any release.

    Nothing is run: see `rank` for what is predicted and chosen, and `verify` to run
    the best few. With equal arguments, every process makes the same choice.

    Args:
      axis_name: the workers' axis; or a tuple (outer, inner) of hosts and the
        `network.per_host` workers of each.
      optimizer: the same optimizer as without a relaxation.
      params: a pytree of arrays or `jax.ShapeDtypeStruct`, as for one device.
      network: workers and links, by hand or by `measure`.
      compute: seconds of a step without communication (`step_seconds`).
      criterion: "fastest", or "fewest_bytes", see `rank`.
      quality: the worst class that may be chosen, see `rank`.
      memory: bytes that a worker has, see `rank`.
      bucket_bytes: bytes of a bucket, or several sizes, see `rank`.
      merge: a rule of `relaxjax.merges`, see `rank`.

    Returns:
      The relaxation and the optimizer, as `relaxjax train` builds them.

    Raises:
      ValueError: see `rank`.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> from relaxjax import plan, schedule
      >>> params = {"w": jnp.zeros((64, 64))}
      >>> network = plan.Network(workers=4, link=schedule.Link(1e-4, 1e9))
      >>> tx = plan.auto("data", optax.sgd(0.1), params, network=network, compute=0.1)
      >>> relaxjax.wire_bytes(tx, params, relaxjax.emulate(4))  # plain all-reduce pays
      24576
    """
    require_transformation("plan.auto", "optimizer", optimizer)
    axes = len(axes_of(axis_name))
    ranked = rank(
        Model(params=params, compute=compute),
        network,
        criterion=criterion,
        quality=quality,
        memory=memory,
        bucket_bytes=bucket_bytes,
        axes=axes,
        merge=merge,
    )
    peers = network.workers if axes == 1 else network.hosts
    return transformation(ranked.choice, axis_name, optimizer, peers)


def transformation(
    row: Row,
    axis_name: AxisName,
    optimizer: optax.GradientTransformation,
    workers: int,
) -> optax.GradientTransformationExtraArgs:
    """The relaxation of a row, with the optimizer.

    Args:
      row: a row of a ranking.
      axis_name: the workers' axis, or a tuple, see `auto`.
      optimizer: the same optimizer as without a relaxation.
      workers: number of workers; of hosts, if the axis name is a tuple.
    """
    choice = parse(row.candidate.relaxation)
    options: dict[str, Any] = {**row.candidate.options, "merge": row.candidate.merge}
    options["periods"] = row.candidate.schedule
    if "bucket_bytes" in choice.row.options:
        options["bucket_bytes"] = row.prediction.bucket_bytes
    training = Training(optimizer, 0.0, 1, workers)
    return choice.build(axis_name, training, **options)


def verify(
    found: Ranking, seconds_of: Callable[[Row], float], *, top: int = 3
) -> Ranking:
    """Runs the best few, and chooses among them by what was measured.

    Experimental: this may change in any release.

    Args:
      found: a ranking.
      seconds_of: runs a few steps of a row (`transformation`) and returns the seconds
        of one, as `step_seconds` does. All processes must get the same.
      top: number of allowed rows to run; plain all-reduce is run as well.

    Returns:
      The ranking with the measured times; its choice is among the rows that were run.

    Raises:
      ValueError: `top < 1`.
    """
    if top < 1:
        raise ValueError(f"top={top} must be 1 or more")
    tried = [row for row in found.rows if row.label in found.allowed][:top]
    tried += [row for row in found.rows if row.label == "all_reduce"]
    tried += [found.choice]
    once = {row.label: row for row in tried}
    measured = {k: replace(row, measured=seconds_of(row)) for k, row in once.items()}
    rows = [measured.get(row.label, row) for row in found.rows]
    may = [label for label in measured if label in found.allowed]
    return ranking(rows, found.criterion, may, found.inputs)

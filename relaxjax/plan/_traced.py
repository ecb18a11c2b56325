"""What a plan finds out about a relaxation from its own program.

    bytes of an exchange    those of one period, of two leaves of each shape, for the
                            number of leaves of that shape
    rounds of an exchange   messages of that period that wait for each other: the most
                            for any shape, as leaves travel together
    floats that it keeps    those of its first state, for each parameter

Where an exchange goes is not known: all of it is assumed to leave the host, after the
backward pass.

Bytes and rounds in closed form (`relaxjax.plan.forms._row_bytes`) take no trace.

Cost: a trace of `init`, and of `update` for each shape without a form, once.
"""

import functools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._relaxation import Relaxation, Training
from relaxjax.plan._candidate import BUCKET_BYTES
from relaxjax.plan._messages import Messages, PlannedMessage
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network
from relaxjax.plan._traffic import over_links
from relaxjax.plan.forms._row_bytes import form_of
from relaxjax.programs import first_steps
from relaxjax.workers import emulate, workers_of

_PLAIN = optax.identity()
_COPIES = 2  # leaves of a shape that are traced; fragments need several


def traced(row: Relaxation) -> Messages:
    """The one message of a period."""

    def messages(
        model: Model, network: Network, bucket_bytes: int
    ) -> list[PlannedMessage]:
        sent, rounds = _sent(row, network.workers, model, bucket_bytes)
        line = sent * network.per_host
        return [PlannedMessage(1.0, over_links(network, sent, line, rounds, 0))]

    return messages


def builds(row: Relaxation, workers: int) -> bool:
    """Whether the row can be built for so many workers, without options."""
    try:
        _built(row, workers)
    except ValueError:
        return False
    return True


def can_send(row: Relaxation, workers: int, model: Model) -> bool:
    """Whether the row takes the leaves of a model."""
    try:
        _sent(row, workers, model, BUCKET_BYTES)
    except ValueError:
        return False
    return True


@functools.cache
def floats_kept(row: Relaxation) -> float:
    """Whole copies of the params in the first state, besides the optimizer's."""
    leaf = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    init = jax.vmap(_built(row, 2).init, axis_name="data", axis_size=2, in_axes=None)
    leaves = jax.tree.leaves(jax.eval_shape(init, [leaf] * _COPIES))
    floats = sum(x.size for x in leaves if jnp.issubdtype(x.dtype, jnp.floating))
    return float(round(floats / (2 * _COPIES * leaf.size)))


def _sent(
    row: Relaxation, workers: int, model: Model, bucket_bytes: int
) -> tuple[float, int]:
    """Bytes that the busiest worker sends in a period, and rounds."""
    shapes = Counter(model.leaves)
    each = [_of_leaf(row, workers, x, _least(row, x, bucket_bytes)) for x in shapes]
    sent = sum(number * x for number, (x, _) in zip(shapes.values(), each, strict=True))
    return sent, max((rounds for _, rounds in each), default=0)


def _least(row: Relaxation, leaf: jax.ShapeDtypeStruct, bucket_bytes: int) -> int:
    """The smallest bucket of the same program: those that hold all leaves are alike."""
    if "bucket_bytes" not in row.options:
        return BUCKET_BYTES
    return min(bucket_bytes, _COPIES * leaf.size * leaf.dtype.itemsize)


@functools.cache
def _of_leaf(
    row: Relaxation, workers: int, leaf: jax.ShapeDtypeStruct, bucket_bytes: int
) -> tuple[float, int]:
    if form := form_of(row.name, leaf, workers):
        sent, rounds = form(leaf, workers, bucket_bytes)
        return sent / _COPIES, rounds
    return traced_leaf(row, workers, leaf, bucket_bytes)


def traced_leaf(
    row: Relaxation, workers: int, leaf: jax.ShapeDtypeStruct, bucket_bytes: int
) -> tuple[float, int]:
    """Bytes of a leaf in a period and rounds, by the program of `_COPIES` of it."""
    # Some average its moments as well.
    tx = _built(row, workers, bucket_bytes, optimizer=optax.scale_by_adam())
    mesh = emulate(workers)
    where = workers_of(mesh, None, "plan")
    steps = first_steps(tx, [leaf] * _COPIES, where, row.period or 1)
    sent = float(np.sum([step.sent for step in steps], axis=0).max())
    return sent / _COPIES, sum(step.rounds for step in steps)


def _built(
    row: Relaxation,
    workers: int,
    bucket_bytes: int | None = None,
    optimizer: optax.GradientTransformation = _PLAIN,
) -> optax.GradientTransformationExtraArgs:
    options = {}
    if bucket_bytes and "bucket_bytes" in row.options:
        options["bucket_bytes"] = bucket_bytes
    return row.build("data", Training(optimizer, 0.0, 1, workers), **options)

"""A worker's own loss as `value=`, which parts the replicas behind any reducer.

`init` cannot know whether the step hands `value=` a mean. The step itself can be looked
at: where a relaxation's update is given `value=`, the step is traced once more, without
a device, and followed:

    from the batch    to `value`: its own, unless a collective lies between
    from `value`      to the params that come out: parted, unless anything lies between
                      that brings the workers together, such as local_sgd

A loss of which only some leaves depend may be the loss itself in the gradient of leaves
that are each worker's on purpose (`relaxjax.local`): then nothing is said.

Cost: one more trace of the first step, where `value=` is given; else nothing.
"""

import warnings
from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import Literal

from relaxjax._core._phases import hosted
from relaxjax._core.traced._extra_args import FAILURES
from relaxjax._core.traced._marks import heard_values
from relaxjax.workers._dependence import NOBODYS, Dependence
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers._tracing import tracing


def shapes_of_one(state: Any, batch: Any, workers: WorkerMesh) -> tuple[Any, Any]:
    """What one worker's step takes, as shapes and dtypes."""

    def own(x: Any) -> jax.ShapeDtypeStruct:
        kind = jax.typeof(x)
        return jax.ShapeDtypeStruct(kind.shape[1:], kind.dtype)

    def share(x: Any) -> jax.ShapeDtypeStruct:
        rows, *rest = x.shape
        return jax.ShapeDtypeStruct((rows // workers.n, *rest), x.dtype)

    return jax.tree.map(own, hosted(state)), jax.tree.map(share, batch)


def warn_of_own_value(
    step: Callable[..., Any], shapes: tuple[Any, Any], workers: WorkerMesh
) -> None:
    """Warns where a worker's own `value=` reaches its params; silent where unsure."""
    try:
        parted = _is_parted(step, *shapes, workers)
    except (*FAILURES, jax.errors.UnexpectedTracerError):  # inside of another trace
        return
    if parted:
        axes = workers.axis_name
        axis = axes[0] if len(axes) == 1 else axes
        warnings.warn(
            "data_parallel: updates depend on value=, which is each worker's own loss "
            "here, and no relaxation comes after it: learning rates, and so models, "
            "part, though gradients are reduced. Give all workers the mean, as in "
            f"tx.update(..., value=jax.lax.pmean(loss, {axis!r}))",
            stacklevel=5,
        )


def _is_parted(
    step: Callable[..., Any], state: Any, batch: Any, workers: WorkerMesh
) -> bool:
    counts: list[int] = []

    def listened(*args: Any) -> Any:
        with heard_values() as heard:
            out = step(*args)
        parts = out[:-1], [v for v, _ in heard], [p for _, p in heard]
        counts[:] = [len(jax.tree.leaves(part)) for part in parts]
        return parts

    with tracing(workers) as trace:
        program = trace(listened)(*state, batch)
    states, values, _ = counts
    ins, outs = program.jaxpr.invars, program.jaxpr.outvars
    given, params = outs[states : states + values], outs[states + values :]

    walk = Dependence(workers.axis_name)
    of_batch = frozenset(("batch", axis) for axis in workers.axis_name)
    own = [NOBODYS] * states + [of_batch] * (len(ins) - states)
    known = walk.of(program.jaxpr, own)[states : states + values]
    walk.seeds = {
        var: frozenset(("value", axis) for _, axis in by)
        for var, by in zip(given, known, strict=True)
        if not isinstance(var, Literal)
    }
    after = walk.steps(program, [NOBODYS] * len(ins), range(states))
    places = [i for i, var in enumerate(ins[:states]) if any(var is p for p in params)]
    return bool(places) and all(after[i] for i in places)

"""Another relaxation in a run that goes on: nothing that was learned is lost.

    params       the workers' mean, for all
    optimizer    its moments and counts likewise, in the new transformation's state
    residuals    before the optimizer: in a residual of the new transformation
                 behind it: in the params, as they are of updates or of models
    the rest     as at a start: anchors, outer momenta, copies of others, counters

At a meeting models are equal and nothing of them is lost. The mean of the moments is
what workers of a local method would have had to agree on anyway. With SGD,

    mean of params - rate x mean of what is owed    is the same before and after

Cost: a digest of 8 bytes for each leaf, and a mean of those that differ between
workers. So nothing more is sent where gradients were reduced.
"""

from typing import Any

import jax
import optax

from relaxjax._core._arrays import require_arrays
from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_transformation
from relaxjax.collectives import is_shard
from relaxjax.faults import rows_apart
from relaxjax.plan.running._residuals import held, moved, parts, put
from relaxjax.workers import at_mean, checked, init_state, workers_of

_CALLER = "plan.taken_over"


def taken_over(
    tx: optax.GradientTransformation,
    optimizer: optax.GradientTransformation,
    params: Any,
    opt_state: Any,
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
) -> tuple[Any, Any]:
    """Params and state of a run for another transformation around the same optimizer.

    Experimental: this may change in any release.

    Args:
      tx: the transformation from here on, such as `plan.transformation(row, ...)`.
      optimizer: the optimizer in both transformations.
      params: the params of the run, each leaf [n, ...].
      opt_state: the state of the transformation until here, likewise.
      mesh: the mesh, or `relaxjax.emulate(...)`.
      axis_name: see `relaxjax.init`.

    Returns:
      `(params, opt_state)` for steps of `tx`, equal on all workers but for what each of
      them owes. Typed keys of the optimizer are worker 0's on all. Arrays that are
      equal on all workers are handed on and not copied.

    Raises:
      ValueError: one of the transformations keeps no state of this optimizer, or of
        several like it; residuals hold gradients and `tx` has no residual, for which
        there is `plan.with_arrears`; a leaf has another number of workers, or lies
        sharded; and as `relaxjax.init` raises.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> from relaxjax import plan
      >>> mesh, adam = relaxjax.emulate(2), optax.adam(1e-3)
      >>> before = optax.chain(relaxjax.all_reduce("data"), adam)
      >>> run = relaxjax.init(before, {"w": jnp.ones(3)}, mesh)
      >>> tx = optax.chain(adam, relaxjax.local_sgd("data", 8))
      >>> params, opt_state = plan.taken_over(tx, adam, *run, mesh)
    """
    require_transformation(_CALLER, "tx", tx)
    require_transformation(_CALLER, "optimizer", optimizer)
    workers = workers_of(mesh, axis_name, _CALLER)
    _check_rows(params, "params", workers.n)
    _check_rows(opt_state, "opt_state", workers.n)
    model = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), params)
    kept = jax.eval_shape(optimizer.init, model)
    form = jax.tree.structure(kept)
    owed = held(_CALLER, params, opt_state, form)
    agreed = _agreed(moved(params, owed.moves))
    params = optax.tree.cast_like(agreed, params)
    fresh = init_state(checked(tx, model, workers), params, workers)
    fresh = put(_CALLER, fresh, owed.gradients, form)
    if not jax.tree.leaves(kept):
        return params, fresh
    own = _agreed(_only(parts(opt_state, form), "opt_state", form))
    _only(parts(fresh, form), "tx", form)
    state = jax.tree.map(
        lambda x: own if _is(x, form) else x, fresh, is_leaf=lambda x: _is(x, form)
    )
    return params, state


def _agreed(tree: Any) -> Any:
    """The workers' mean, for all; leaves that are equal already are not sent."""
    leaves, form = jax.tree.flatten(tree)
    apart = [i for i, row in enumerate(rows_apart(leaves)) if row is not None]
    for i, mean in zip(apart, at_mean([leaves[i] for i in apart]), strict=True):
        leaves[i] = mean
    return jax.tree.unflatten(form, leaves)


def _check_rows(tree: Any, name: str, n: int) -> None:
    require_arrays(tree, _CALLER)
    for leaf in jax.tree.leaves(tree, is_leaf=is_shard):
        if is_shard(leaf):
            raise ValueError(
                f"{_CALLER}: {name} has slices of params that lie sharded, and each "
                "worker must have them whole: begin anew from relaxjax.fsdp.whole"
            )
        if leaf.ndim < 1 or len(leaf) != n:
            raise ValueError(
                f"{_CALLER}: a leaf of {name} has shape {leaf.shape}, and each must be "
                f"[{n}, ...], for the {n} workers of the mesh: give what their step "
                "returned (relaxjax.resized is for another number)"
            )


def _is(x: Any, form: Any) -> bool:
    return jax.tree.structure(x) == form


def _only(found: list[Any], name: str, form: Any) -> Any:
    if len(found) != 1:
        raise ValueError(
            f"{_CALLER}: {name} has {len(found)} states of this optimizer, and must "
            f"have one, of the form {str(form)[:200]}: give the very optimizer that "
            "both transformations are built around"
        )
    return found[0]

"""Whether an update synchronizes the workers: traced abstractly, before training."""

import warnings
from collections.abc import Mapping
from typing import Any

import jax
import optax

from relaxjax._core._arrays import shapes_of
from relaxjax._core._tree import leaf_names
from relaxjax._core.traced._flows import Flows
from relaxjax._core.traced._marks import FIRST, REDUCERS, differentiated
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._advised import (
    warn_of_idle,
    warn_of_kept_nans,
    warn_of_memory,
    warn_of_mini_steps,
)
from relaxjax.workers.followed._drawing_keys import Folds, Keys
from relaxjax.workers.followed._traced import Traced, traced


def require_synchronized(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    extra_args: Mapping[str, Any] | None = None,
    known: Traced | None = None,
) -> Folds:
    """Refuses chains in which relaxations stand wrongly, or leaves are forgotten.

    Returns:
      Which keys of the state each worker has of its own; none where nothing is known.

    Raises:
      ValueError: the update refuses its arguments; a relaxation of models has an
        optimizer behind it, or a reducer with a momentum in it has one before it; a
        reducer gets what another has reduced; a worker's own
        gradient decides whether it communicates; nothing synchronizes some leaves, or
        some axes; a key draws on both sides of a relaxation.

    Warns:
      UserWarning: nothing synchronizes anything; models are brought together that are
        equal already; a method remarks on how it was put together; an optimizer
        accumulates gradients
        inside of a relaxation of models, which counts all mini-steps; an optimizer
        remembers params, and undoes each meeting of models; the update could not be
        traced, so that nothing was checked.
    """
    known = known or traced(tx, params, workers, extra_args)
    flows, own, error = known.flows, known.own, known.error
    if flows is None:
        if isinstance(error, ValueError):  # the first step would say no other
            raise error
        if error:
            kind = type(error).__name__
            warnings.warn(_UNSEEN.format(f"{kind}: {error}"), stacklevel=4)
        return {}
    _require_sides(flows)
    _require_first(flows)
    _require_together(known.alone, workers)
    _require_one_side(known.keys)
    _require_once(flows)
    warn_of_idle(flows)
    for text in known.said:
        warnings.warn(f"init: {text}", stacklevel=4)
    warn_of_mini_steps(flows, known.state)
    warn_of_kept_nans(known.state)
    warn_of_memory(tx, params, workers, extra_args, known)
    if not flows.stations and not flows.communicates and not own:
        if workers.n > 1:
            warnings.warn(_NOTHING, stacklevel=4)
    else:
        _require_all_leaves(flows, own, workers, params)
    return known.keys.own


_NOTHING = (
    "init: nothing in this transformation synchronizes the workers, so that each "
    "would train a model of its own. Put relaxjax.all_reduce before the optimizer; or, "
    "if the train step reduces gradients by itself, give init reduced_in_step=True"
)


_UNSEEN = (
    "init: nothing in this transformation was checked, as its update could not be "
    "traced: {}. If it needs an argument that the train step gives it, give init the "
    "shape, as in extra_args={{'name': jax.ShapeDtypeStruct((), jnp.float32)}}"
)


_PASSED_BY = (
    "init: there is a reducer over {0!r}, and yet the updates of all leaves depend on "
    "a worker's own gradients, which pass it by, so that the models will drift apart. "
    "Put it before all that may leave it out, such as optax.contrib.sam and "
    "optax.conditionally_transform: optax.chain(reducer, wrapper(optimizer))"
)


def _require_sides(flows: Flows) -> None:
    behind = set().union(*(flow.behind for flow in flows.of.values()))
    for at, operation in sorted(behind):
        raise ValueError(
            f"init: {at.name} stands before something that changes its updates (by "
            f"`{operation}`), such as an optimizer. Its updates take each model to "
            "where the workers meet, and nothing may be done to them: put it last, as "
            f"in optax.chain(optimizer, relaxjax.{at.name}(...))"
        )


_FIRST = {
    "momenta": "has a momentum of its own, of gradients and not of updates. Put it "
    "first, as in optax.chain(relaxjax.{0}(...), optax.sgd(...)); behind an optimizer, "
    "all_reduce may send codes, with error feedback",
    "optimizer": "is an optimizer itself. Leave one of the two out",
}


def _require_first(flows: Flows) -> None:
    for at, field in sorted(flows.led):
        if at.side in FIRST:
            raise ValueError(
                f"init: {at.name} stands behind an optimizer, which remembers "
                f"gradients in {field!r} of its state, and "
                + _FIRST[at.side].format(at.name)
            )


def _require_one_side(keys: Keys) -> None:
    if keys.torn:
        raise ValueError(
            f"init: numbers drawn by the key {keys.torn[0]!r} of the optimizer's state "
            "go into a relaxation, before which they should differ between workers, "
            "and into what comes after it, where they must not. Take two keys, one for "
            "each side"
        )


def _require_together(alone: frozenset[str], workers: WorkerMesh) -> None:
    if alone and workers.n > 1:
        axes = workers.axis_name
        axis = axes[0] if len(axes) == 1 else axes
        raise ValueError(
            f"init: whether {sorted(alone)[0]} communicates is decided by a worker's "
            "own gradient, as by optax.apply_if_finite or MultiSteps("
            "should_skip_update_fn=) around it: workers that decide otherwise would "
            "wait for each other forever (emulated, their models part or end in NaN). "
            f"Skip together, by relaxjax.skip_nonfinite(tx, {axis!r}) without that "
            "wrapper; or decide behind the reducer, by gradients that are equal on all "
            "workers: optax.chain(reducer, optax.apply_if_finite(optimizer, 5))"
        )


def _require_once(flows: Flows) -> None:
    for first, second in sorted(flows.twice):
        axes = sorted(set(first.axes) & set(second.axes))
        raise ValueError(
            f"init: {second.name} gets updates that {first.name} has reduced over "
            f"{axes} already: they are equal on all workers, and reducing them again "
            "costs bytes, or adds them up. Leave one of the two out, or give them "
            "different axes"
        )


def _only_reduces(flows: Flows) -> bool:
    sides = {station.side for station in flows.stations}
    return bool(sides) and sides <= REDUCERS


def _with_gradients(params: Any) -> frozenset[str]:
    """Names of the leaves that have gradients, and elements."""
    names = jax.tree.unflatten(jax.tree.structure(params), leaf_names(params))
    pairs = zip(leaf_names(params), jax.tree.leaves(shapes_of(params)), strict=True)
    empty = {name for name, x in pairs if not x.size}
    return frozenset(jax.tree.leaves(differentiated(names))) - empty


def _require_all_leaves(
    flows: Flows, own: frozenset[str], workers: WorkerMesh, params: Any
) -> None:
    """Refuses leaves whose own gradients reach the updates without a reduction."""
    names = _with_gradients(params)
    local = [pair for flow in flows.of.values() for pair in flow.local]
    reach = {
        axis: {leaf for leaf, at in local if at == axis and leaf in names}
        for axis in workers.axis_name
    }
    for axis, local in reach.items():
        forgotten = sorted(local - own)
        if forgotten and local < names:
            raise ValueError(
                f"init: nothing synchronizes the updates of {forgotten} over {axis!r}, "
                "while other leaves are synchronized, so the workers' models would "
                "drift apart. Reduce them too; or, where they are meant to differ, "
                "mark them with relaxjax.local() in optax.partition"
            )
    apart = sorted(axis for axis, local in reach.items() if local)
    shared = sorted(axis for axis, local in reach.items() if not local)
    if shared and apart and not own:
        raise ValueError(
            f"init: updates are synchronized over {shared} but not over {apart}. Give "
            f"the transformation all axes, such as all_reduce({workers.axis_name}), or "
            f"if {apart} are not data-parallel, name those that are: "
            f"axis_name={shared[0]!r}"
        )
    if apart and not own and _only_reduces(flows):
        warnings.warn(_PASSED_BY.format(apart[0]), stacklevel=5)

"""What a step does around its relaxations, which a chain would be refused for.

    gradients that meet before a reducer     they are reduced twice, and a sum stays one
    updates of models that are changed       they no longer end where the models meet
    state that is made in the step           counts and residuals begin anew each time
    state, or params, that stay              likewise, or nothing is learned

Of relaxations that are called in a loop, or in a `jit` in the step, nothing is known.

Cost: a walk over the traced step (`relaxjax.workers.followed._as_it_is`).
"""

import warnings
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from relaxjax._core.traced._marks import FIRST, REDUCERS, Given
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers.followed._as_it_is import ANY, AS_IS
from relaxjax.workers.followed._dependence import NOBODYS, Own
from relaxjax.workers.followed._looked import Looked
from relaxjax.workers.followed._places import optimizer_places


def warn_around(
    found: Looked, outs: Sequence[Own], moved: set[int], workers: WorkerMesh
) -> None:
    """Warns of the first of these faults; `outs` are the marks of the results."""
    for call, x in enumerate(found.given):
        text = (
            _reduced(found, x, outs, workers)
            or _changed(found, x, outs, f"update {call}.")
            or _forgotten(found, x, outs, moved, f"made {call}.")
            or _left(found, x, moved)
        )
        if text:
            warnings.warn(text, stacklevel=5)
            return


def _reduced(
    found: Looked, x: Given, outs: Sequence[Own], workers: WorkerMesh
) -> str | None:
    own = NOBODYS.union(*found.of(outs, x.updates))
    axes = [axis for axis in x.at.axes if axis in workers.axis_name]
    met = [axis for axis in axes if ("batch", axis) not in own]
    if x.at.side not in REDUCERS | FIRST or not met or ("batch", ANY) not in own:
        return None
    return (
        f"data_parallel: {x.at.name} is given gradients that the step has brought "
        f"together over {met} already. They are equal on all workers, and a sum of "
        "them stays a sum. Give it each worker's own gradients; or leave "
        f"{x.at.name} out, and make the optimizer's state by "
        "relaxjax.init(..., reduced_in_step=True)"
    )


def _changed(found: Looked, x: Given, outs: Sequence[Own], prefix: str) -> str | None:
    on_the_way = [
        mark
        for i in found.places_of(x.params)
        for source, mark in outs[i]
        if source.startswith(prefix) and mark != AS_IS
    ]
    if not on_the_way:
        return None
    return (
        f"data_parallel: the step changes the updates of {x.at.name} (by "
        f"`{min(on_the_way)}`) before they are added to the params. They take each "
        "model to where the workers meet, and nothing may be done to them. Do it "
        "before, in the chain, as in optax.chain(optimizer, optax.scale(0.5), "
        f"relaxjax.{x.at.name}(...)), and end by "
        "params = optax.apply_updates(params, updates)"
    )


def _forgotten(
    found: Looked, x: Given, outs: Sequence[Own], moved: set[int], prefix: str
) -> str | None:
    state, made = jax.tree.leaves(x.state), jax.tree.leaves(x.made[1])
    if not state or moved.isdisjoint(found.places):
        return None  # as where an update is only looked at
    kept, of = found.places_of(state), NOBODYS.union(*found.of(outs, state))
    begins = "state" not in {source for source, _ in of}
    later = NOBODYS.union(*outs[: found.states])
    goes_on = any(mark == AS_IS and x.startswith(prefix) for x, mark in later)
    if begins and not goes_on:  # or else it may begin here
        fate = "made in the step"
    elif len(kept) == len(state) and state != made and moved.isdisjoint(kept):
        fate = "returned as it was"
    else:
        return None
    return (
        f"data_parallel: the state of {x.at.name} is {fate}, so that counts, residuals "
        "and momenta in it never leave their start. Make it by relaxjax.init before "
        "all steps, and return what tx.update returns: "
        "updates, opt_state = tx.update(gradients, opt_state, params)"
    )


def _left(found: Looked, x: Given, moved: set[int]) -> str | None:
    places = found.places_of(x.params)
    optimizers = optimizer_places(found.state)
    if not places or not moved.isdisjoint(places) or moved.isdisjoint(optimizers):
        return None
    leaves = jax.tree.leaves(found.state)
    if any(jnp.issubdtype(leaves[i].dtype, jnp.floating) for i in moved - optimizers):
        return None  # where the updates may have gone
    return (
        "data_parallel: the optimizer steps, and the params come out of the step as "
        "they went in, so that nothing is learned. Return the new ones: "
        "params = optax.apply_updates(params, updates)"
    )

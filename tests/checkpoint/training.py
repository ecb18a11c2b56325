"""Relaxations by their names, trained for some steps on the small problem."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import relaxjax
from relaxjax._core._relaxation import Training
from relaxjax._names import RELAXATIONS, parse
from relaxjax.checkpoint._tree import data_of
from relaxjax.tasks import OPTIMIZERS
from tests import helpers

STEPS = 6  # length of training, for relaxations that have phases
OPTIONS: dict[str, dict[str, Any]] = {
    "power_sgd": {"rank": 1, "start_after": 2},
    "acp_sgd": {"rank": 1, "start_after": 1},
    "sparse_loco": {"sync_every": 2},
    "deep_gradient_compression": {"warmup_steps": 1},
    **{
        row.name: {"sync_every": 2}
        for row in RELAXATIONS.values()
        if "sync_every" in row.options
    },
}
CODED = (
    "all_reduce+top_k+ef14",
    "all_reduce+top_k+intersection@two_shot",
    "all_reduce+top_k+ef21",
    "all_reduce+top_k+ef21_sgdm",
    "all_reduce+top_k+econtrol",
    "all_reduce+top_k+dgc",
    "all_reduce+quantize4+loco",
    "all_reduce+stochastic4@two_shot",
    "gossip+sign",
    "parameter_server+sign+ef14",
    "parameter_server+quantize4+loco",
)
NAMES = (*RELAXATIONS, *CODED)


def relaxed(name: str, workers: int) -> optax.GradientTransformation:
    choice = parse(name)
    optimizer = OPTIMIZERS[choice.row.parent].make(0.01)
    training = Training(optimizer, 0.01, STEPS, workers)
    return choice.build("data", training, **OPTIONS.get(choice.row.name, {}))


def fresh(tx: optax.GradientTransformation, mesh: Any) -> Any:
    return relaxjax.init(tx, helpers.problem(), mesh)


def trained(
    tx: optax.GradientTransformation, state: Any, mesh: Any, batches: Any, **how: Any
) -> Any:
    """Params and optimizer state after the batches."""
    step = relaxjax.data_parallel(helpers.train_step_of(tx), mesh, **how)
    for batch in batches:
        *state, _ = step(*state, batch)
    return tuple(state)


def bits(tree: Any) -> list[tuple[str, str, bytes]]:
    """Each leaf's dtype, shape and bytes."""
    leaves = map(jnp.asarray, jax.tree.leaves(tree))
    arrays = [np.asarray(data_of(x)) for x in leaves]
    return [(str(x.dtype), str(x.shape), x.tobytes()) for x in arrays]

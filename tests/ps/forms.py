"""The two forms of a parameter server, trained alike."""

from typing import Any

import jax
import optax

import relaxjax
from relaxjax import ps
from tests import helpers

Tree = Any


def step_of(optimizer: optax.GradientTransformation, loss: Any = helpers.loss_fn):
    """A train step on a loss, of whole params or of shards."""

    def train_step(params, opt_state, batch):
        value, grads = jax.value_and_grad(loss)(params, batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": value}

    return train_step


def pulled_step(optimizer, mesh, start: Tree, *, axis_name="data", servers=None, **how):
    """The step with `ps.pulled`, and its first state."""
    loss = ps.pulled(helpers.loss_fn, axis_name, **how)
    state = ps.init(optimizer, start, mesh, servers=servers)
    return relaxjax.data_parallel(step_of(optimizer, loss), mesh), state


def served_step(optimizer, mesh, start: Tree, *, axis_name="data", **how):
    """The step with `parameter_server`, and its first state."""
    tx = relaxjax.parameter_server(optimizer, axis_name, **how)
    state = relaxjax.init(tx, start, mesh)
    return relaxjax.data_parallel(step_of(tx), mesh), state


FORMS = {"pulled": pulled_step, "served": served_step}


def sharded(params: Tree) -> bool:
    """Whether they lie at servers."""
    leaves = jax.tree.leaves(params, is_leaf=lambda x: isinstance(x, ps.Shard))
    return any(isinstance(x, ps.Shard) for x in leaves)


def one_model(params: Tree) -> Tree:
    """As on one device, of either form; no worker differs from another."""
    if sharded(params):
        return ps.whole(params)
    assert relaxjax.spread(params) == 0.0
    return jax.tree.map(lambda x: x[0], params)


def train(form: str, optimizer, mesh, data, *, start: Tree = None, **how) -> Tree:
    """The model after some steps."""
    start = helpers.problem() if start is None else start
    step, state = FORMS[form](optimizer, mesh, start, **how)
    for batch in data:
        *state, _ = step(*state, batch)
    return one_model(state[0])


def reduced(
    optimizer, mesh, data, *, start: Tree = None, axis_name: Any = "data"
) -> Tree:
    """The model of an all-reduce before the same optimizer."""
    tx = optax.chain(relaxjax.all_reduce(axis_name), optimizer)
    params, _, _ = helpers.train(tx, mesh, data, params=start)
    return one_model(params)

"""What 1-bit Adam, 1-bit LAMB and 0/1 Adam have in common.

Here 0/1 Adam meets in each step, so that all three keep their workers alike.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import compression, emulate
from tests import helpers, sharded
from tests.gradients.rate_references import start_of
from tests.gradients.references import SHAPES, gradients, run
from tests.helpers import assert_close

RATE, B1, B2 = 0.01, 0.9, 0.99
MEETING = {"most_local_steps": 1, "variance_doubling": 10**12}

Made = Callable[..., Any]


def one_bit_adam(freeze_step: Any, **knobs: Any) -> Any:
    numbers = {"b1": B1, "b2": B2, **knobs}
    return relaxjax.one_bit_adam("data", RATE, freeze_step=freeze_step, **numbers)


def one_bit_lamb(freeze_step: Any, **knobs: Any) -> Any:
    numbers = {"b1": B1, "b2": B2, **knobs}
    return relaxjax.one_bit_lamb("data", RATE, freeze_step=freeze_step, **numbers)


def zero_one_adam(freeze_step: Any, **knobs: Any) -> Any:
    numbers = {"b1": B1, "b2": B2, **MEETING, **knobs}
    return relaxjax.zero_one_adam("data", RATE, freeze_step=freeze_step, **numbers)


PARENTS: dict[Made, optax.GradientTransformation] = {
    one_bit_adam: optax.adamw(RATE, B1, B2),
    one_bit_lamb: optax.lamb(RATE, B1, B2),
    zero_one_adam: optax.adamw(RATE, B1, B2),
}
ALL = pytest.mark.parametrize("made", PARENTS, ids=lambda made: made.__name__)


def weighted_step(tx: Any) -> Any:
    def train_step(params, opt_state, batch):
        g, weight = batch
        own = jax.tree.map(lambda x: x[0], g)
        updates, opt_state = tx.update(own, opt_state, params, weight=weight[0])
        return optax.apply_updates(params, updates), opt_state, {}

    return relaxjax.data_parallel(train_step, emulate(2))


@pytest.mark.few(2)
@ALL
def test_the_switch_compiles_once_more(made):
    params, traces, tx = {"w": jnp.ones((4, 4))}, [], made(3)

    def train_step(params, opt_state, batch):
        traces.append(1)
        updates, opt_state = tx.update(params, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"x": batch.sum()}

    state = relaxjax.init(tx, params, emulate(4))
    step = relaxjax.data_parallel(train_step, emulate(4))
    for turn in range(6):
        *state, _ = step(*state, np.zeros(4))
        assert len(traces) == (1 if turn < 3 else 2)


@pytest.mark.few(2)
@pytest.mark.parametrize("made", [one_bit_adam, one_bit_lamb])
def test_the_switch_sends_less(made):
    params = {k: jnp.zeros(s) for k, s in {"w": (64, 32), "b": (32,)}.items()}
    ring = relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, emulate(4))
    sent = [
        relaxjax.wire_bytes(made(3), params, emulate(4), start=step)
        for step in range(5)
    ]
    signs = 64 * 32 // 4 // 8 + 4  # of a quarter, and its scale
    late = 2 * 3 * signs + 2 * 3 * 32 // 4 * 4
    assert sent == [ring] * 3 + [late] * 2
    assert relaxjax.wire_bytes(made(3), params, emulate(4), steps=5) == sum(sent)


@pytest.mark.few(1)
@ALL
def test_an_absent_worker_counts_for_nothing(made):
    """Before the switch and after it."""
    grads = gradients(2, steps=6)
    alone = [{k: np.stack([x[0]] * 2) for k, x in g.items()} for g in grads]
    tx = made(3, compressor=compression.identity())
    step, state = weighted_step(tx), relaxjax.init(tx, start_of(), emulate(2))
    for g in grads:
        *state, _ = step(*state, (g, np.array([3.0, 0.0])))
    expected = run(tx, alone, 2, start_of())
    for worker in range(2):
        found = jax.tree.map(lambda x, worker=worker: x[worker], state[0])
        assert_close(found, expected, 1e-5)


@ALL
def test_params_and_state_may_be_donated_together(made):
    params = jax.tree.map(jnp.asarray, start_of())
    helpers.assert_no_shared_buffer((params, made(3).init(params)))


@pytest.mark.few(2)
@ALL
def test_beside_tensor_parallelism_it_is_its_parent(made):
    """Before the switch and with it, without loss; state is sharded like params."""
    mesh, gradient = sharded.mesh_of(4, 2), jax.grad(sharded.loss_fn)
    tx = made(3, compressor=compression.identity(), specs=sharded.SPECS)
    start = sharded.sharded(sharded.problem(), mesh)
    state: list[Any] = [*relaxjax.init(tx, start, mesh, axis_name="data")]
    step = relaxjax.data_parallel(helpers.step_of(gradient, tx), mesh, axis_name="data")
    parent = PARENTS[made]
    expected = jax.tree.map(jnp.asarray, sharded.problem())
    own = parent.init(expected)
    alone = jax.jit(helpers.step_of(gradient, parent))
    for batch in helpers.batches(3, rows=8):
        *state, _ = step(*state, batch)
        expected, own, _ = alone(expected, own, batch)
    params: Any = state[0]
    assert params["layer1"]["w"].sharding.spec == P("data", None, "model")
    assert_close(jax.tree.map(lambda x: x[0], params), expected, 1e-5)


@pytest.mark.few(2)
@ALL
def test_beside_tensor_parallelism_workers_agree_after_the_switch(made):
    """With signs: each shard has its own scale and its own residual."""
    mesh = sharded.mesh_of(4, 2)
    tx = made(2, specs=sharded.SPECS)
    start = sharded.sharded(sharded.problem(), mesh)
    state: list[Any] = [*relaxjax.init(tx, start, mesh, axis_name="data")]
    step = relaxjax.data_parallel(
        helpers.step_of(jax.grad(sharded.loss_fn), tx), mesh, axis_name="data"
    )
    *earlier, last = helpers.batches(6, rows=8)
    for batch in earlier:
        *state, _ = step(*state, batch)
    before = helpers.host(state[0])
    *state, _ = step(*state, last)
    after = helpers.host(state[0])
    assert relaxjax.spread(after) == 0
    moved = np.abs(after["layer1"]["w"] - before["layer1"]["w"])
    assert 0 < moved.min() < moved.max() < 10 * RATE


@pytest.mark.few(1)
@pytest.mark.parametrize("made", [one_bit_adam, one_bit_lamb])
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_16_bits_stay_close(made, dtype):
    def narrow(tree):
        return jax.tree.map(lambda g: g.astype(dtype), tree)

    grads = [narrow(g) for g in gradients(2, steps=8)]
    params = run(made(3), grads, 2, narrow(start_of()))
    assert all(x.dtype == dtype for x in jax.tree.leaves(params))
    exact = run(made(3), gradients(2, steps=8), 2, start_of())
    for k in SHAPES:
        np.testing.assert_allclose(
            params[k].astype(np.float32), exact[k], rtol=0.1, atol=0.1
        )


@pytest.mark.few(1)
@ALL
def test_a_nan_on_one_worker_shows_on_all(made):
    grads = gradients(4, steps=4)
    grads[3]["w"][1, 0, 0] = np.nan
    assert np.isnan(run(made(2), grads, 4)["w"]).any()


@ALL
@pytest.mark.parametrize("freeze_step", [0, -1, 2.5])
def test_refuses_what_is_no_freeze_step(made, freeze_step):
    named = f"{made.__name__}: freeze_step={freeze_step} must be a whole"
    with pytest.raises(ValueError, match=named):
        made(freeze_step)


@ALL
def test_refuses_params_that_it_cannot_take(made):
    with pytest.raises(ValueError, match="would compress nothing"):
        relaxjax.init(made(3), {"b": jnp.zeros(3)}, emulate(2))
    with pytest.raises(ValueError, match="leaf 'w' is int32"):
        relaxjax.init(made(3), {"w": jnp.zeros((3, 3), jnp.int32)}, emulate(2))


@ALL
def test_refuses_an_update_without_params(made):
    tx, params = made(3), {"w": jnp.ones((2, 2))}
    with pytest.raises(ValueError, match=f"{made.__name__}: update needs params"):
        jax.vmap(lambda g: tx.update(g, tx.init(params)), axis_name="data")(
            {"w": jnp.ones((2, 2, 2))}
        )

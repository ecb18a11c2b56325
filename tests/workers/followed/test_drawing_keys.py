"""Keys in an optimizer's state: whose they are by where their numbers meet.

By hand, a worker's key is `jax.random.fold_in(key, worker)`, handed to optax.
"""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import (
    accumulate,
    all_reduce,
    diloco,
    emulate,
    gossip,
    local_sgd,
    topology,
)
from relaxjax.workers import WorkerMesh
from relaxjax.workers.followed._own_keys import own_keys
from tests.helpers import assert_close, assert_equal

MESH = emulate(4)
GRADS = jnp.arange(12.0).reshape(4, 3) / 8


def noise(key: Any = 0) -> Any:
    return optax.add_noise(1.0, 0.0, key)


def own(worker: int) -> Any:
    return noise(jax.random.fold_in(jax.random.key(0), worker))


def key_rows(state: Any) -> list[np.ndarray]:
    keys = [
        x
        for x in jax.tree.leaves(state)
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    ]
    return [np.asarray(jax.random.key_data(x)) for x in keys]


def trained(tx: Any, steps: int = 2, mesh: Any = MESH) -> tuple[Any, Any]:
    def step(params, state, grads):
        updates, state = tx.update(grads[0], state, params)
        return optax.apply_updates(params, updates), state, {}

    params, state = relaxjax.init(tx, jnp.zeros(3), mesh)
    train = relaxjax.data_parallel(step, mesh)
    for _ in range(steps):
        params, state, _ = train(params, state, GRADS)
    return params, state


def by_hand(txs: list[Any], steps: int = 2) -> list[jax.Array]:
    """What each of these workers makes of its own gradients, added up."""
    found = []
    for tx, grads in zip(txs, GRADS, strict=True):
        state, total = tx.init(jnp.zeros(3)), jnp.zeros(3)
        for _ in range(steps):
            updates, state = tx.update(grads, state)
            total += updates
        found.append(total)
    return found


def test_noise_before_the_mean_is_each_workers_own():
    params, _ = trained(optax.chain(noise(), all_reduce("data"), optax.sgd(1.0)))
    expected = -jnp.mean(jnp.stack(by_hand([own(i) for i in range(4)])), axis=0)
    assert_close(params, jnp.stack([expected] * 4))


def test_noise_behind_the_mean_is_that_of_one_device():
    params, state = trained(optax.chain(all_reduce("data"), noise(), optax.sgd(1.0)))
    alone = noise()
    kept, expected = alone.init(jnp.zeros(3)), jnp.zeros(3)
    for _ in range(2):
        updates, kept = alone.update(GRADS.mean(axis=0), kept)
        expected -= updates
    assert_close(params, jnp.stack([expected] * 4))
    assert relaxjax.spread(params) == 0
    assert_equal(*[np.unique(key_rows(state)[0], axis=0).shape[0], 1])


def test_private_gradients_of_workers_have_the_noise_of_one_batch():
    """As in the recipe: a clip of 2, 16 rows, a multiplier of 3 for the batch."""
    private = optax.contrib.differentially_private_aggregate(2.0, 3 / 4**0.5, 0)
    tx, zeros = optax.chain(all_reduce("data"), optax.sgd(1.0)), jnp.zeros(65_536)

    def step(params, state, noise, batch):
        each = jnp.zeros((len(batch), *params.shape))
        grads, noise = private.update(each, noise)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, noise, {}

    params, state = relaxjax.init(tx, zeros, MESH)
    noise = relaxjax.to_workers(private.init(zeros), MESH)
    train = relaxjax.data_parallel(step, MESH)
    params, *_ = train(params, state, noise, np.zeros((16, 1)))
    assert float(jnp.std(params[0])) == pytest.approx(3 * 2 / 16, rel=0.02)


NOISY = optax.chain(noise(), optax.sgd(1.0))
MEET: dict[str, Any] = {
    "local_sgd": optax.chain(NOISY, local_sgd("data", 2)),
    "diloco": diloco(NOISY, "data", 2, outer=optax.sgd(1.0)),
    "accumulate": accumulate(
        optax.chain(noise(), all_reduce("data"), optax.sgd(2.0)), 2
    ),
}


@pytest.mark.parametrize("name", ["local_sgd", "diloco"])
def test_workers_that_meet_later_draw_their_own(name):
    params, _ = trained(MEET[name])
    expected = -jnp.mean(jnp.stack(by_hand([own(i) for i in range(4)])), axis=0)
    assert_close(params, jnp.stack([expected] * 4))


@pytest.mark.parametrize(
    "tx",
    [*MEET.values(), optax.chain(NOISY, gossip("data", topology.ring(4)))],
    ids=[*MEET, "gossip"],
)
def test_no_two_workers_have_the_same_key(tx):
    _, state = trained(tx)
    (rows,) = key_rows(state)
    assert len(np.unique(rows, axis=0)) == 4


def test_along_the_axis_where_they_meet():
    """Inside of a host noise is behind a mean; the hosts' models are averaged."""
    tx = optax.chain(all_reduce("data"), NOISY, local_sgd("host", 2))
    params, state = trained(tx, mesh=emulate({"host": 2, "data": 2}))
    (rows,) = key_rows(state)
    assert len(np.unique(rows, axis=0)) == 2
    assert_equal(rows[0], rows[1])
    assert relaxjax.spread(params) == 0


AROUND: dict[str, Any] = {
    "skip_nonfinite": lambda tx: relaxjax.skip_nonfinite(tx, "data"),
    "participation": lambda tx: relaxjax.participation(tx, "data", [[1, 1, 1, 1]]),
    "accumulate": lambda tx: accumulate(tx, 2),
    "MultiSteps": lambda tx: optax.MultiSteps(tx, 2).gradient_transformation(),
    "apply_if_finite": lambda tx: optax.chain(
        all_reduce("data"), optax.apply_if_finite(optax.chain(noise(), optax.sgd(1)), 2)
    ),
}


@pytest.mark.parametrize("name", AROUND)
def test_what_stands_around_changes_no_side(name):
    behind = optax.chain(all_reduce("data"), noise(), optax.sgd(1.0))
    params, state = trained(AROUND[name](behind))
    assert relaxjax.spread(params) == 0
    assert all(len(np.unique(rows, axis=0)) == 1 for rows in key_rows(state))
    if name == "apply_if_finite":
        return
    before = optax.chain(noise(), all_reduce("data"), optax.sgd(1.0))
    _, state = trained(AROUND[name](before))
    assert all(len(np.unique(rows, axis=0)) == 4 for rows in key_rows(state))


def test_numbers_of_one_key_on_both_sides_are_refused():
    inner, reducer = noise(), all_reduce("data")

    def init(params):
        return inner.init(params), reducer.init(params)

    def update(updates, state, params=None):
        first, second = state
        noisy, after = inner.update(updates, first, params)
        mean, second = reducer.update(noisy, second, params)
        return mean + (noisy - updates), (after, second)

    tx = optax.chain(optax.GradientTransformation(init, update), optax.sgd(1.0))
    with pytest.raises(ValueError, match="by the key '0/0/rng_key' of"):
        relaxjax.init(tx, jnp.zeros(3), MESH)


def late_noise() -> Any:
    """Adds in each step the noise that was drawn in the step before."""
    inner = noise()

    def init(params):
        return inner.init(params), jnp.zeros_like(params)

    def update(updates, state, params=None):
        del params
        kept, before = state
        drawn, kept = inner.update(jnp.zeros_like(updates), kept)
        return updates + before, (kept, drawn)

    return optax.GradientTransformation(init, update)


def test_numbers_that_wait_in_the_state():
    before = optax.chain(late_noise(), all_reduce("data"), optax.sgd(1.0))
    _, state = trained(before)
    assert len(np.unique(key_rows(state)[0], axis=0)) == 4
    _, state = trained(optax.chain(all_reduce("data"), late_noise(), optax.sgd(1.0)))
    assert len(np.unique(key_rows(state)[0], axis=0)) == 1


ALONG: list[Any] = [
    ([0, 0, 0, 0], set()),
    ([0, 0, 1, 1], {"host"}),
    ([0, 1, 0, 1], {"data"}),
    ([0, 0, 0, 1], {"host", "data"}),
    ([0, 1, 2, 3], {"host", "data"}),
]


@pytest.mark.parametrize("on_devices", [True, False])
@pytest.mark.parametrize(("keys", "axes"), ALONG)
def test_along_which_axes_keys_differ(keys, axes, on_devices):
    sizes = {"host": 2, "data": 2}
    mesh: Any = emulate(sizes)
    rows = jax.vmap(jax.random.key)(jnp.asarray(keys))
    if on_devices:
        mesh = jax.make_mesh((2, 2), ("host", "data"))
        rows = jax.device_put(rows, NamedSharding(mesh, P(("host", "data"))))
    found = own_keys([{"w": jnp.ones(4), "k": rows}], WorkerMesh(mesh, (*sizes,), 4))
    assert found == ({0: {("0/k", axis) for axis in axes}} if axes else {})


def said_by_nnx(tx: Any, *, same: bool, dropout: float = 0.0) -> list[str]:
    """Warnings of the first step of a model and its `nnx.Optimizer`."""

    class Model(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.first = nnx.Linear(3, 2, rngs=rngs)
            self.drop = nnx.Dropout(dropout, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.drop(self.first(x))

    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    model = relaxjax.to_workers(model, MESH)
    optimizer = relaxjax.to_workers(optimizer, MESH, same=same)

    def step(model, optimizer, batch):
        grads = nnx.grad(lambda m: jnp.mean(m(batch) ** 2))(model)
        optimizer.update(model, grads)
        return model, optimizer, {}

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, _, _ = relaxjax.data_parallel(step, MESH)(model, optimizer, GRADS)
    words = [str(w.message) for w in caught if w.category is UserWarning]
    assert {w.filename for w in caught if w.category is UserWarning} <= {__file__}
    assert bool(words) == (relaxjax.spread(nnx.state(model, nnx.Param)) > 0)
    return words


BEHIND = optax.chain(all_reduce("data"), noise(), optax.sgd(0.1))


def test_a_key_that_parts_models_is_named():
    (words,) = said_by_nnx(BEHIND, same=False)
    assert "its own key '1/opt_state/1/rng_key/value', and" in words
    assert "same=True" in words


def test_keys_that_part_nothing_are_not():
    assert said_by_nnx(BEHIND, same=True, dropout=0.5) == []
    assert (
        said_by_nnx(
            optax.chain(noise(), all_reduce("data"), optax.sgd(0.1)),
            same=False,
            dropout=0.5,
        )
        == []
    )

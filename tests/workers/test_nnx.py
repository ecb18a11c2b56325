"""`flax.nnx.Optimizer` in the step: what it trains is what `relaxjax.init` trains."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import relaxjax
from relaxjax._core._relaxation import Training
from relaxjax._names import RELAXATIONS, parse
from tests.helpers import assert_close
from tests.hosts.launched import require_run

WORKERS, STEPS = 4, 5
SERVED = "parameter_server"  # makes its state in the axis
OPTIONS = {"power_sgd": {"rank": 1, "start_after": 2}}
PARTS = 7
"""Launches: each takes every seventh relaxation."""


class Model(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(6, 16, rngs=rngs)
        self.output = nnx.Linear(16, 12, rngs=rngs)

    def __call__(self, x):
        return self.output(nnx.relu(self.hidden(x)))


def data():
    rng = np.random.default_rng(0)
    return [rng.normal(size=(4 * WORKERS, 6)).astype(np.float32) for _ in range(STEPS)]


def loss_fn(model, x):
    return jnp.mean((model(x) - x.sum(axis=1, keepdims=True)) ** 2)


def optimizer_step(model, optimizer, batch):
    loss, grads = nnx.value_and_grad(loss_fn)(model, batch)
    optimizer.update(model, grads)
    return model, optimizer, {"loss": loss}


def by_optimizer(tx, mesh, batches=None):
    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    state = relaxjax.to_workers((model, optimizer), mesh)
    step = relaxjax.data_parallel(optimizer_step, mesh)
    for batch in batches or data():
        *state, _ = step(*state, batch)
    return nnx.state(state[0], nnx.Param)


def by_init(tx, mesh):
    graph, params = nnx.split(Model(nnx.Rngs(0)), nnx.Param)

    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(
            lambda params: loss_fn(nnx.merge(graph, params), batch)
        )(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    state = relaxjax.init(tx, params, mesh)
    step = relaxjax.data_parallel(train_step, mesh)
    for batch in data():
        *state, _ = step(*state, batch)
    return state[0]


def built(name):
    training = Training(optax.adam(0.05), 0.05, STEPS, WORKERS)
    return parse(name).build("data", training, **OPTIONS.get(name, {}))


def assert_trains_the_same(name):
    mesh = relaxjax.emulate(WORKERS)
    assert_close(by_optimizer(built(name), mesh), by_init(built(name), mesh))


@pytest.mark.few(2)
@pytest.mark.parametrize("name", [name for name in RELAXATIONS if name != SERVED])
def test_an_optimizer_of_nnx_trains_the_same(name):
    assert_trains_the_same(name)


def test_fields_of_an_optimizer_have_the_same_names_in_one_of_nnx():
    assert_trains_the_same("desynced")


LEAVES = ["hidden/bias", "hidden/kernel", "output/bias", "output/kernel"]
VARIABLES = [f"{name}/value" for name in LEAVES]


def _cut(name, shape):
    assert name in LEAVES, name
    return 1, *shape


BY_NAME = {
    "order": lambda: relaxjax.all_reduce("data", order=LEAVES, bucket_bytes=64),
    "order of variables": lambda: relaxjax.all_reduce("data", order=VARIABLES),
    "as_matrices": lambda: relaxjax.power_sgd("data", as_matrices=_cut, rank=1),
    "rank": lambda: relaxjax.power_sgd(
        "data", rank={0: dict.fromkeys(LEAVES[1::2], 1)}
    ),
    "fragment_of": lambda: relaxjax.streaming_diloco(
        optax.sgd(0.05),
        "data",
        sync_every=4,
        fragments=2,
        fragment_of=dict(zip(LEAVES, [0, 1, 0, 1], strict=True)).__getitem__,
    ),
    "norms": lambda: optax.chain(
        relaxjax.all_reduce("data"), relaxjax.controllers.norms_of_sums(2)
    ),
}


@pytest.mark.parametrize("name", BY_NAME)
def test_leaves_have_the_same_names_in_init_and_in_update(name):
    """`init` sees variables, and `update` the arrays in them."""
    tx = BY_NAME[name]()
    if name != "fragment_of":
        tx = optax.chain(tx, optax.sgd(0.05))
    mesh = relaxjax.emulate(WORKERS)
    assert_close(by_optimizer(tx, mesh), by_init(tx, mesh))


@pytest.mark.long
def test_phases_end_in_an_optimizer_of_nnx():
    mesh = relaxjax.emulate(WORKERS)
    tx = relaxjax.one_bit_adam("data", 0.01, freeze_step=2)
    found = by_optimizer(tx, mesh)
    assert_close(found, by_init(tx, mesh))
    warm = by_init(relaxjax.one_bit_adam("data", 0.01, freeze_step=100), mesh)
    assert relaxjax.spread(jax.tree.map(lambda *x: jnp.stack(x), found, warm)) > 1e-2


def by_split(tx, mesh, prepare):
    """The step's state is without its structure, in which the clock's phase is."""
    model = Model(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    graph, state = nnx.split(prepare((model, optimizer)))

    def train_step(state, batch):
        model, optimizer = nnx.merge(graph, state)
        *_, metrics = optimizer_step(model, optimizer, batch)
        return nnx.state((model, optimizer)), metrics

    step = relaxjax.data_parallel(train_step, mesh)
    state = relaxjax.to_workers(state, mesh)
    for batch in data():
        state, _ = step(state, batch)
    return nnx.state(nnx.merge(graph, state)[0], nnx.Param)


@pytest.mark.long
def test_phases_end_where_no_clock_is_in_the_state():
    mesh = relaxjax.emulate(WORKERS)
    tx = relaxjax.one_bit_adam("data", 0.01, freeze_step=2)
    # A program whose products are batched otherwise is equal on some CPUs only.
    assert_close(by_split(tx, mesh, lambda model: model), by_init(tx, mesh))


def test_a_clock_whose_phase_nobody_can_set_any_longer_is_refused():
    tx = relaxjax.one_bit_adam("data", 0.01, freeze_step=2)
    with pytest.raises(ValueError, match=r"after 2 steps, .* nnx\.Optimizer whole"):
        by_split(tx, relaxjax.emulate(WORKERS), relaxjax.advance_phases)


def test_state_that_is_made_in_the_axis_names_init():
    tx = relaxjax.parameter_server(optax.sgd(0.1), "data")
    with pytest.raises(NameError, match=r"relaxjax\.init"):
        nnx.Optimizer(Model(nnx.Rngs(0)), tx, wrt=nnx.Param)


def test_a_module_that_changes_in_place_is_seen():
    mesh = relaxjax.emulate(WORKERS)

    def train_step(model, batch):
        model.hidden.kernel.set_value(
            model.hidden.kernel.get_value().astype("bfloat16")
        )
        return model, {"loss": batch.mean()}

    step = relaxjax.data_parallel(train_step, mesh)
    model = relaxjax.to_workers(Model(nnx.Rngs(0)), mesh)
    with pytest.raises(ValueError, match=r"'hidden/kernel/value' was float32.*bfloat"):
        step(model, data()[0])


def test_another_model_is_still_another_tree():
    tx = relaxjax.delay(1)
    state = tx.init(nnx.state(Model(nnx.Rngs(0)), nnx.Param))
    other = nnx.as_pure(nnx.state(Model(nnx.Rngs(0)), nnx.Param))
    del other["output"]
    with pytest.raises(ValueError, match=r"leaf 'output/bias' was float32\[12\]"):
        tx.update(other, state)


class Tied(Model):
    """One variable in two places."""

    def __init__(self, rngs: nnx.Rngs):
        super().__init__(rngs)
        self.again = self.hidden


def test_variables_in_two_places_are_refused_and_split_they_are_one():
    mesh, tied = relaxjax.emulate(WORKERS), Tied(nnx.Rngs(0))
    named = "'again/bias' and 'hidden/bias' are one variable of flax.nnx"
    with pytest.raises(ValueError, match="to_workers: 'model/again/bias' and"):
        relaxjax.to_workers({"model": tied, "count": 0}, mesh)
    tx = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1))
    with pytest.raises(ValueError, match=f"init: .*{named}"):
        relaxjax.init(tx, tied, mesh)
    graph, params = nnx.split(tied, nnx.Param)
    merged = nnx.merge(graph, relaxjax.consensus(relaxjax.init(tx, params, mesh)[0]))
    assert merged.again is merged.hidden


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("part", range(PARTS))
def test_processes_train_as_one_does(part, tmp_path):
    names = [name for name in RELAXATIONS if name != SERVED][part::PARTS]
    require_run("tests.workers.nnx_processes", tmp_path, *names, devices=2)
    here, other = (json.loads((tmp_path / f"{i}.json").read_text()) for i in range(2))
    for name in names:
        assert not isinstance(here[name], str), here[name]
        assert other[name] == here[name], name
        model = relaxjax.consensus(by_init(built(name), relaxjax.emulate(WORKERS)))
        for leaf, own in zip(here[name], jax.tree.leaves(model), strict=True):
            np.testing.assert_allclose(leaf, own, 1e-3, 1e-4, err_msg=name)

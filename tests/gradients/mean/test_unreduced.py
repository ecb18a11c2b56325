"""Reducers in a plain `jit` step: from equal gradients, the bits of `data_parallel`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import compression
from tests.helpers import mesh_of

N, STEPS = 8, 3
EXPLICIT = AxisType.Explicit
SHAPES = {"w": (16, 12), "u": (12, 4)}
EIGHT = compression.quantize(8)
OVER_DATA = frozenset({"data"})


def reduced(compressor: Any = None) -> Any:
    return relaxjax.all_reduce("data", compressor=compressor)


REDUCERS = {
    "all_reduce": reduced(),
    "quantize": reduced(EIGHT),
    "sign": reduced(compression.error_feedback(compression.sign())),
    "top_k": reduced(compression.error_feedback(compression.top_k(0.1))),
    "stochastic": reduced(compression.quantize(4, stochastic_rounding=True)),
    "loco": reduced(compression.loco(compression.quantize(4))),
    "power_sgd": relaxjax.power_sgd("data", rank=2),
    "dgc": relaxjax.deep_gradient_compression("data", density=0.1),
}


def explicit(shape=(N,), names=("data",)):
    devices = jax.devices()[: int(np.prod(shape))]
    kinds = (EXPLICIT,) * len(shape)
    return jax.make_mesh(shape, names, axis_types=kinds, devices=devices)


def start():
    rng = np.random.default_rng(0)
    return {k: rng.normal(size=s).astype(np.float32) / 4 for k, s in SHAPES.items()}


def batches():
    rng = np.random.default_rng(1)
    return rng.normal(size=(STEPS, 2 * N, 16)).astype(np.float32)


def loss_fn(params, x):
    return jnp.mean(jnp.tanh(x @ params["w"] @ params["u"]) ** 2)


def plain(tx, mesh, specs=None):
    """The plain step: its only lines of ours are `unreduced` and the reducer."""

    def step(params, opt_state, x):
        grads = jax.grad(loss_fn)(relaxjax.unreduced(params, "data"), x)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    specs = specs or {k: P() for k in SHAPES}
    params = jax.tree.map(jax.device_put, start(), specs)
    return jax.jit(step), params, tx.init(params)


def parallel(tx, mesh):
    def step(params, opt_state, x):
        grads = jax.grad(loss_fn)(params, x)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {}

    return relaxjax.data_parallel(step, mesh), *relaxjax.init(tx, start(), mesh)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", REDUCERS)
def test_updates_and_bytes_are_those_of_data_parallel(name):
    """Steps of the two programs, each from its own gradients."""
    tx = optax.chain(REDUCERS[name], optax.sgd(0.1))
    mesh = explicit()
    run, params, opt_state = parallel(tx, mesh_of(N))
    data = batches()
    with jax.set_mesh(mesh):
        step, ours, state = plain(tx, mesh)
        x = jax.device_put(data[0], P("data"))
        mine = relaxjax.compiled_wire_bytes(step, ours, state, x)
        for x in data:
            ours, state = step(ours, state, jax.device_put(x, P("data")))
            jax.block_until_ready(ours)
    theirs = relaxjax.compiled_wire_bytes(run, params, opt_state, data[0])
    assert mine == theirs
    for x in data:
        params, opt_state, _ = run(params, opt_state, x)
    for key in SHAPES:
        np.testing.assert_allclose(ours[key], params[key][0], rtol=1e-4, atol=1e-5)
        assert ours[key].sharding.is_fully_replicated


def drawn(seed=2):
    rng = np.random.default_rng(seed)
    return {k: rng.normal(size=(N, *s)).astype(np.float32) for k, s in SHAPES.items()}


ALL = REDUCERS | {"one_bit_adam": relaxjax.one_bit_adam("data", 1e-2, freeze_step=1)}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ALL)
def test_from_equal_gradients_updates_are_bit_equal(name):
    """Gradients that each worker is given; products make them unreduced."""
    tx, mesh, local = ALL[name], explicit(), drawn()

    def step(params, opt_state, batch):
        grads = jax.tree.map(lambda g: g[0], batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {}

    run = relaxjax.data_parallel(step, mesh_of(N))
    params, opt_state = relaxjax.init(tx, start(), mesh_of(N))
    for _ in range(2):
        params, opt_state, _ = run(params, opt_state, local)

    def weighted(params, batch):
        """The gradient by w is the sum over workers of batch / N."""
        pairs = jax.tree.map(
            lambda w, g: jnp.sum(
                jnp.einsum("ij,nij->n", w, g, out_sharding=P("data"))
            ) / N,
            params,
            batch,
        )  # fmt: skip
        return sum(jax.tree.leaves(pairs))

    @jax.jit
    def one(params, opt_state, batch):
        grads = jax.grad(weighted)(relaxjax.unreduced(params, "data"), batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    with jax.set_mesh(mesh):
        ours = jax.tree.map(lambda x: jax.device_put(x, P()), start())
        state, batch = tx.init(ours), jax.device_put(local, P("data"))
        for _ in range(2):
            ours, state = one(ours, relaxjax.advance_phases(state), batch)
            jax.block_until_ready(ours)
    for key in SHAPES:
        np.testing.assert_array_equal(ours[key], params[key][0])


def one_step(mesh, specs, loss):
    """A plain step in 8 bits of params that lie so; it must be the unsharded one."""
    tx = optax.chain(reduced(compression.error_feedback(EIGHT)), optax.sgd(0.1))

    @jax.jit
    def step(params, opt_state, x):
        grads = jax.grad(loss)(relaxjax.unreduced(params, "data"), x)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    with jax.set_mesh(mesh):
        params = jax.tree.map(jax.device_put, start(), specs)
        state, first = tx.init(params), batches()[0]
        params, state = step(params, state, jax.device_put(first, P("data")))
    grads = jax.grad(loss_fn)(start(), first)
    for key, x in start().items():
        np.testing.assert_allclose(params[key], x - 0.1 * grads[key], atol=2e-4)
        assert params[key].sharding.spec == specs[key]
    return state


def test_beside_params_that_another_axis_shards():
    """Mesh ('data', 'fsdp'): parts are reduced where they lie."""

    def loss(params, x):
        hidden = x @ params["w"]
        y = jnp.einsum("bi,ij->bj", hidden, params["u"], out_sharding=P("data"))
        return jnp.mean(jnp.tanh(y) ** 2)

    specs = {"w": P(None, "fsdp"), "u": P("fsdp", None)}
    state = one_step(explicit((4, 2), ("data", "fsdp")), specs, loss)
    residual = state[0].residual if hasattr(state[0], "residual") else state[0]
    shapes = {leaf.shape[0] for leaf in jax.tree.leaves(residual) if leaf.ndim}
    assert shapes == {4}


def test_beside_fsdp_and_tensor_parallelism():
    """Mesh ('data', 'fsdp', 'model'): weights are gathered over one axis of three."""

    def loss(params, x):
        w = jax.reshard(params["w"], P(None, "model", reduced=OVER_DATA))
        u = jax.reshard(params["u"], P("model", None, reduced=OVER_DATA))
        y = jnp.einsum("bi,ij->bj", x @ w, u, out_sharding=P("data"))
        return jnp.mean(jnp.tanh(y) ** 2)

    specs = {"w": P("fsdp", "model"), "u": P("model", "fsdp")}
    one_step(explicit((2, 2, 2), ("data", "fsdp", "model")), specs, loss)


TEACHER = {k: 4 * x[::-1] / 3 for k, x in start().items()}


def taught(params, x):
    """The error beside a teacher, of params that other axes may shard."""
    hidden, aim = jnp.tanh(x @ params["w"]), jnp.tanh(x @ TEACHER["w"]) @ TEACHER["u"]
    if not jax.typeof(x).sharding.mesh.are_all_axes_explicit:
        return jnp.mean((hidden @ params["u"] - aim) ** 2)
    y = jnp.einsum("bi,ij->bj", hidden, params["u"], out_sharding=P("data"))
    return jnp.mean((y - aim) ** 2)


def fifty_steps(tx, mesh, specs):
    """Losses of a plain program."""

    @jax.jit
    def step(params, opt_state, x):
        seen = relaxjax.unreduced(params, "data")
        loss, grads = jax.value_and_grad(taught)(seen, x)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, loss

    losses = []
    with jax.set_mesh(mesh):
        params = jax.tree.map(jax.device_put, start(), specs)
        opt_state = tx.init(params)
        for x in np.random.default_rng(5).normal(size=(50, 64, 16)):
            x = jax.device_put(np.float32(x), P("data"))
            params, opt_state, loss = step(params, opt_state, x)
            opt_state = relaxjax.advance_phases(opt_state)
            losses.append(float(loss))
    return np.array(losses)


def fifty_steps_of_workers(tx, mesh):
    """Mean losses of the same program under `data_parallel`."""

    def step(params, opt_state, x):
        loss, grads = jax.value_and_grad(taught)(params, x)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    run, losses = relaxjax.data_parallel(step, mesh), []
    params, opt_state = relaxjax.init(tx, start(), mesh)
    for x in np.random.default_rng(5).normal(size=(50, 64, 16)):
        params, opt_state, metrics = run(params, opt_state, np.float32(x))
        losses.append(float(np.mean(metrics["loss"])))
    return np.array(losses)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_fifty_steps_are_those_of_data_parallel(name):
    """Where an axis shards params, parts have codes, ranks and choices of their own."""
    rate = {"one_bit_adam": ()}.get(name, (optax.sgd(0.3),))
    tx = optax.chain(ALL[name], *rate)
    theirs = fifty_steps_of_workers(tx, mesh_of(4))
    assert theirs[-1] < 0.2 * theirs[0]
    whole = fifty_steps(tx, explicit((4,)), {k: P() for k in SHAPES})
    np.testing.assert_allclose(whole, theirs, rtol=1e-3)
    specs = {"w": P(None, "fsdp"), "u": P("fsdp", None)}
    cut = fifty_steps(tx, explicit((4, 2), ("data", "fsdp")), specs)
    others = dict.fromkeys(("power_sgd", "dgc", "one_bit_adam"), 0.05)
    limits = {"all_reduce": 1e-4, **others}
    np.testing.assert_allclose(cut[-1], theirs[-1], rtol=limits.get(name, 0.01))


def test_an_auto_axis_is_refused_with_the_line_to_write():
    x = jax.device_put(jnp.zeros(3), jax.NamedSharding(mesh_of(2), P()))
    with pytest.raises(ValueError, match=r"jax.make_mesh\(\(8,\), \('data',\)"):
        relaxjax.unreduced({"w": x}, "data")


def test_params_sharded_over_the_reducers_axis_are_refused():
    with jax.set_mesh(explicit((2,))):
        x = jax.device_put(jnp.zeros(4), P("data"))
        with pytest.raises(ValueError, match=r"Use relaxjax.fsdp.gathered"):
            relaxjax.unreduced({"w": x}, "data")


def test_gradients_that_are_reduced_already_are_refused():
    tx = reduced()
    with jax.set_mesh(explicit((2,))):
        w = jax.device_put(jnp.zeros((4, 4)), P())
        state = tx.init(w)
        with pytest.raises(ValueError, match="is already summed over"):
            jax.jit(tx.update)(w, state)
        x = jax.device_put(jnp.ones((2, 4)), P("data"))
        gradient = jax.jit(jax.grad(lambda w, x: jnp.sum(x @ w)))
        grad = gradient(relaxjax.unreduced(w, "data"), x)
        with (
            pytest.warns(UserWarning, match="its making is not seen"),
            pytest.raises(ValueError, match="put the weights into the loss"),
        ):
            tx.update(grad, state, weight=jnp.float32(1))


def test_a_step_that_is_not_finite_is_left_out_by_optax_behind_the_reducer():
    """Every device has the common gradient, so all leave the same steps out."""
    tx = optax.chain(reduced(), optax.apply_if_finite(optax.adam(0.1), 10))
    with jax.set_mesh(explicit()):
        step, params, opt_state = plain(tx, explicit())
        bad = batches()[0].copy()
        bad[3, 5] = np.nan
        first, second = (jax.device_put(x, P("data")) for x in (batches()[0], bad))
        params, opt_state = step(params, opt_state, first)
        after, opt_state = step(params, opt_state, second)
    assert optax.tree.get(opt_state, "total_notfinite") == 1
    for x, y in zip(jax.tree.leaves(params), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(x, y)


def test_microbatches_whose_losses_are_divided_are_the_whole_batch():
    """As docs/plain_jit.md has them; JAX divides no unreduced gradient."""
    tx, mesh, k = optax.chain(reduced(), optax.sgd(0.5)), explicit(), STEPS

    @jax.jit
    def step(params, opt_state, batches):
        def grads_of(batch):
            own = relaxjax.unreduced(params, "data")
            return jax.grad(lambda w: loss_fn(w, batch) / k)(own)

        def add(total, batch):
            return jax.tree.map(jnp.add, total, grads_of(batch)), None

        grads, _ = jax.lax.scan(add, grads_of(batches[0]), batches[1:])
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    whole = batches()
    grads = jax.grad(loss_fn)(start(), np.concatenate(whole))
    with jax.set_mesh(mesh):
        params = jax.tree.map(lambda x: jax.device_put(x, P()), start())
        found, _ = step(params, tx.init(params), jax.device_put(whole, P(None, "data")))
    for name, x in start().items():
        expected = x - 0.5 * grads[name]
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-6)

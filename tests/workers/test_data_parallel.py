"""The step wrapper: batches, metrics, state, and how it behaves in a loop."""

import collections
import collections.abc
import subprocess
import sys
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.core import FrozenDict
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import all_reduce, data_parallel, emulate, to_workers
from tests import helpers
from tests.helpers import assert_close, assert_equal, mesh_of

SGD = optax.chain(all_reduce("data"), optax.sgd(0.1))
PLACES = {"mesh": mesh_of, "emulated": emulate}
places = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)


@pytest.mark.few(2)
@pytest.mark.parametrize("optimizer", [optax.sgd(0.05), optax.adam(1e-2)])
def test_fifty_steps_of_eight_workers_equal_one(optimizer):
    data = helpers.batches(50, rows=32)
    params, opt_state = relaxjax.init(
        tx := optax.chain(all_reduce("data"), optimizer), helpers.problem(), mesh_of(8)
    )
    step = data_parallel(helpers.train_step_of(tx), mesh_of(8))
    for batch in data:
        params, opt_state, _ = step(params, opt_state, batch)
        assert relaxjax.spread(params) == 0.0
    expected, _ = helpers.train_alone(optimizer, data)
    assert_close(jax.tree.map(lambda x: x[0], params), expected, 1e-5)


@pytest.mark.few(2)
@pytest.mark.parametrize("algorithm", ["psum", "ring"])
def test_two_axes_of_workers(algorithm):
    axes = ("host", "device")
    tx: Any = optax.chain(all_reduce(axes, algorithm=algorithm), optax.sgd(0.1))
    data = helpers.batches(3, rows=12)
    expected, _ = helpers.train_alone(optax.sgd(0.1), data)
    grid = np.reshape(jax.devices()[:6], (2, 3))
    for mesh in (jax.sharding.Mesh(grid, axes), emulate({"host": 2, "device": 3})):
        params, _, _ = helpers.train(tx, mesh, data)
        assert_close(jax.tree.map(lambda x: x[0], params), expected)
        assert relaxjax.spread(params) == 0.0


@places
def test_rows_go_to_workers_in_order(place):
    step = data_parallel(
        lambda total, batch: (total + batch["x"].sum(), {"first": batch["x"][0]}),
        place(4),
    )
    total, metrics = step(
        to_workers(np.float32(0), place(4)), {"x": np.arange(8, dtype=np.float32)}
    )
    np.testing.assert_array_equal(total, [1, 5, 9, 13])
    assert float(metrics["first"]) == 3.0


@places
def test_any_number_of_states_in_their_order(place):
    def step(params, opt_state, statistics, key, batch):
        key, use = jax.random.split(key)
        noise = jax.random.normal(use)
        return params + 1, opt_state, statistics * 2, key, {"noise": noise}

    mesh = place(3)
    states = [to_workers(x, mesh) for x in (1.0, {"count": 0}, 2.0, jax.random.key(0))]
    *out, metrics = data_parallel(step, mesh)(*states, np.zeros(3))
    np.testing.assert_array_equal(out[0], [2, 2, 2])
    np.testing.assert_array_equal(out[2], [4, 4, 4])
    assert jnp.issubdtype(out[3].dtype, jax.dtypes.prng_key)
    keys = [jax.random.fold_in(jax.random.key(0), i) for i in range(3)]
    noise = [float(jax.random.normal(jax.random.split(k)[1])) for k in keys]
    assert float(metrics["noise"]) == pytest.approx(np.mean(noise), rel=1e-5)


@places
def test_metrics_are_means_in_float32(place):
    def step(state, batch):
        low = batch.astype(jnp.bfloat16)
        return state, {"x": low[0], "count": jnp.int32(batch[0]), "ok": batch[0] > 2}

    _, metrics = data_parallel(step, place(4))(
        to_workers(0, place(4)), np.array([1, 2, 3, 257], np.float32)
    )
    assert metrics["x"].dtype == jnp.float32
    assert float(metrics["x"]) == (1 + 2 + 3 + 256) / 4  # 257 rounds to 256 in bfloat16
    assert float(metrics["count"]) == 263 / 4
    assert float(metrics["ok"]) == 0.5


@places
def test_metrics_without_a_mean_are_refused_by_name(place):
    for x, kind in (("text", "str"), (jax.random.key(0), r"key<fry>\[\]")):
        step = data_parallel(lambda w, _, x=x: (w, {"a": 1.0, "b": x}), place(4))
        with pytest.raises(TypeError, match=f"metric 'b' is of type {kind}, and has"):
            step(to_workers(np.zeros(1), place(4)), np.zeros(4))


@places
def test_a_number_as_state_is_answered_as_any_other(place):
    step = data_parallel(lambda w, _: (w, ()), place(4))
    with pytest.raises(ValueError, match=r"state argument 0 has shape \(\), without"):
        step(0.5, np.zeros(4))


@places
def test_metrics_weighted_by_examples(place):
    def step(state, batch):
        count = jnp.sum(batch["mask"])
        loss = jnp.sum(batch["x"] * batch["mask"]) / count  # 0 / 0 on an empty worker
        return state, {"loss": loss, "weight": count}

    x = np.array([1, 2, 3, 4, 5, 6], np.float32)
    mask = np.array([1, 0, 1, 1, 0, 0], np.float32)
    _, metrics = data_parallel(step, place(3))(
        to_workers(0, place(3)), {"x": x, "mask": mask}
    )
    assert float(metrics["loss"]) == pytest.approx((1 + 3 + 4) / 3)
    assert float(metrics["weight"]) == 3.0


class Named(collections.abc.Mapping[str, Any]):
    """A mapping of one's own, whose leaves have numbers alone."""

    def __init__(self, **of: Any):
        self.of = of

    def __getitem__(self, name: str) -> Any:
        return self.of[name]

    def __iter__(self) -> Any:
        return iter(self.of)

    def __len__(self) -> int:
        return len(self.of)


jax.tree_util.register_pytree_node(
    Named,
    lambda x: ([*x.of.values()], tuple(x.of)),
    lambda names, leaves: Named(**dict(zip(names, leaves, strict=True))),
)


@pytest.mark.parametrize("kind", [dict, collections.OrderedDict, FrozenDict, Named])
@pytest.mark.parametrize("jitted", [True, False])
def test_weighted_metrics_stay_what_they_are(jitted, kind):
    """Another metric may be the weight as well, under disable_jit the same array."""

    def step(state, batch):
        count = batch.sum()
        more = {} if kind is Named else {"rows": count, "of": {"weight": batch[0]}}
        return state, kind(**{"loss": batch[0] * 2, **more, "weight": count})

    batch = np.array([1, 3, 5, 3], np.float32)
    state = to_workers(0, emulate(2))
    with jax.disable_jit(not jitted):
        _, metrics = data_parallel(step, emulate(2))(state, batch)
    assert type(metrics) is kind
    assert float(metrics["loss"]) == pytest.approx((4 * 2 + 8 * 10) / 12)
    assert float(metrics["weight"]) == 12
    if kind is not Named:
        assert float(metrics["rows"]) == pytest.approx((4 * 4 + 8 * 8) / 12)
        assert float(metrics["of"]["weight"]) == pytest.approx((4 * 1 + 8 * 5) / 12)


def test_donated_state_may_not_be_used_again():
    params, opt_state = relaxjax.init(SGD, helpers.problem(), mesh_of(2))
    step = data_parallel(helpers.train_step_of(SGD), mesh_of(2), donate=True)
    (batch,) = helpers.batches(1, 4)
    new, _, _ = step(params, opt_state, batch)
    with pytest.raises(RuntimeError, match="has been deleted"):
        np.asarray(params["layer1"]["w"])
    state = relaxjax.init(SGD, helpers.problem(), mesh_of(2))
    again, _, _ = data_parallel(helpers.train_step_of(SGD), mesh_of(2))(*state, batch)
    np.asarray(state[0]["layer1"]["w"])  # without donation the old state lives on
    assert_equal(again, new)


def test_without_metrics_and_donating():
    def step(state, batch):
        return state + batch.sum(), {}

    run = data_parallel(step, mesh_of(4), donate=True)
    state, metrics = to_workers(np.float32(0), mesh_of(4)), None
    for _ in range(40):
        state, metrics = run(state, np.ones(4, np.float32))
    np.testing.assert_array_equal(state, [40] * 4)
    assert metrics == {}


SPECS = {
    "whole": P(),
    "by rows": P("data"),
    "on another axis": P("model"),
    "columns": P(None, "data"),
    "rows and columns": P("data", "model"),
}


@pytest.mark.few(6)
@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
@pytest.mark.parametrize("spec", [*SPECS, "another mesh"])
def test_a_batch_may_lie_on_the_mesh_in_any_way(spec, kind):
    devices = np.array(jax.devices()[:4])
    types = {"axis_types": (kind, AxisType.Auto)}
    mesh = Mesh(devices.reshape(2, 2), ("data", "model"), **types)
    other = Mesh(devices, ("q",), axis_types=(kind,))
    lies = NamedSharding(mesh, SPECS.get(spec, P()))
    lies = NamedSharding(other, P("q")) if spec == "another mesh" else lies
    x = np.arange(32, dtype=np.float32).reshape(8, 4)

    def step(total, x):
        return total + x.sum(), x.sum()

    run = data_parallel(step, mesh, axis_name="data")
    total = to_workers(np.float32(0), mesh, axis_name="data")
    total, mean = run(total, jax.device_put(x, lies))
    np.testing.assert_array_equal(total, [x[:4].sum(), x[4:].sum()])
    assert mean == x.sum() / 2


def test_device_arrays_are_taken_as_they_are():
    step = data_parallel(lambda state, x: (state, x.sum()), mesh_of(2))
    state = to_workers(0, mesh_of(2))
    spec = jax.sharding.PartitionSpec("data")
    placed = jax.device_put(
        jnp.arange(4.0), jax.sharding.NamedSharding(mesh_of(2), spec)
    )
    assert float(step(state, placed)[1]) == 3.0
    assert float(step(state, jnp.arange(4.0))[1]) == 3.0


@pytest.mark.few(1)
@places
def test_batch_norm_over_the_axis(place):
    """flax's own statistics over all workers equal those of the whole batch."""
    batch = helpers.batches(1, rows=12)[0]

    def run(tx, mesh, axis_name):
        model = nn.BatchNorm(use_running_average=False, axis_name=axis_name)
        plain = nn.BatchNorm(use_running_average=False)
        variables = plain.init(jax.random.key(0), batch["x"])

        def step(params, statistics, opt_state, batch):
            def loss(params):
                out, new = model.apply(
                    {"params": params, "batch_stats": statistics},
                    batch["x"],
                    mutable=["batch_stats"],
                )
                error = jnp.tanh(out)[:, :3] - batch["y"]
                return jnp.mean(error**2), new["batch_stats"]

            (value, statistics), grads = jax.value_and_grad(loss, has_aux=True)(params)
            updates, opt_state = tx.update(grads, opt_state, params)
            params = optax.apply_updates(params, updates)
            return params, statistics, opt_state, {"loss": value}

        params, opt_state = relaxjax.init(tx, variables["params"], mesh)
        statistics = to_workers(variables["batch_stats"], mesh)
        train, metrics = data_parallel(step, mesh), {"loss": np.nan}
        for _ in range(3):
            params, statistics, opt_state, metrics = train(
                params, statistics, opt_state, batch
            )
        return relaxjax.consensus((params, statistics)), float(metrics["loss"])

    expected, loss = run(optax.sgd(0.5), emulate(1), None)
    got, got_loss = run(
        optax.chain(all_reduce("data"), optax.sgd(0.5)), place(4), "data"
    )
    assert_close(got, expected, 1e-5)
    assert got_loss == pytest.approx(loss, rel=1e-5)


@places
def test_accumulation_by_scan_over_microbatches(place):
    def step(params, opt_state, batch):
        def one(total, micro):
            return jax.tree.map(
                jnp.add, total, jax.grad(helpers.loss_fn)(params, micro)
            ), None

        micro = jax.tree.map(lambda x: x.reshape(2, -1, *x.shape[1:]), batch)
        zeros = jax.tree.map(jnp.zeros_like, params)
        total, _ = jax.lax.scan(one, zeros, micro)
        grads = jax.tree.map(lambda g: g / 2, total)
        updates, opt_state = SGD.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {}

    params, opt_state = relaxjax.init(SGD, helpers.problem(), place(4))
    run = data_parallel(step, place(4))
    data = helpers.batches(3, rows=16)
    for batch in data:
        params, opt_state, _ = run(params, opt_state, batch)
    expected, _ = helpers.train_alone(optax.sgd(0.1), data)
    assert_close(relaxjax.consensus(params), expected, 1e-5)


UNBLOCKED = """
import jax, numpy as np, optax, relaxjax
jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((8,), ("data",))
tx = optax.chain(relaxjax.all_reduce("data", algorithm="{algorithm}"), optax.sgd(0.1))
def train_step(params, opt_state, batch):
    loss, grads = jax.value_and_grad(lambda p: ((batch @ p) ** 2).mean())(params)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, {metrics}
params, opt_state = relaxjax.init(tx, np.ones((64, 64), np.float32), mesh)
step = relaxjax.data_parallel(train_step, mesh, donate={donate})
batch = np.ones((64, 64), np.float32)
for _ in range(500):
    params, opt_state, metrics = step(params, opt_state, batch)
print("spread", relaxjax.spread(params))
"""


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("algorithm", "metrics", "donate"),
    [("psum", '{"loss": loss}', False), ("ring", "{}", True)],
)
def test_500_steps_without_blocking_do_not_deadlock(
    algorithm, metrics, donate, monkeypatch
):
    # As a user runs it: nothing in the environment, nothing set but the devices.
    for ours in ("NPROC", "XLA_FLAGS"):
        monkeypatch.delenv(ours, raising=False)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    script = UNBLOCKED.format(algorithm=algorithm, metrics=metrics, donate=donate)
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.strip() == "spread 0.0"


def call(place, step, *args):
    return data_parallel(step, place)(*args)


def test_bad_meshes():
    for mesh in (8, None, "data"):
        with pytest.raises(TypeError, match=r"is not a mesh.*relaxjax.emulate"):
            data_parallel(lambda s, b: (s, {}), mesh)
    with pytest.raises(TypeError, match=r"init: mesh=8.*relaxjax.emulate\(8\)"):
        relaxjax.init(SGD, helpers.problem(), 8)


def test_mesh_larger_than_the_devices():
    mesh = jax.sharding.AbstractMesh((64,), ("data",))
    with pytest.raises(
        ValueError, match=r"a mesh of 64 devices.*there are 16.*emulate\(64\)"
    ):
        data_parallel(lambda s, b: (s, {}), mesh)
    small = jax.sharding.AbstractMesh((2,), ("data",))
    step = data_parallel(lambda s, b: (s + b.sum(), {}), small)
    state, _ = step(to_workers(0.0, small), np.ones(2, np.float32))
    np.testing.assert_array_equal(state, [1, 1])


def test_unknown_axis():
    with pytest.raises(ValueError, match="no axis 'batch'; its axes are 'data'"):
        data_parallel(lambda s, b: (s, {}), mesh_of(2), axis_name="batch")
    with pytest.raises(ValueError, match="leaves out axes of an emulated mesh"):
        data_parallel(lambda s, b: (s, {}), emulate({"a": 2, "b": 2}), axis_name="a")


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "8"])
def test_bad_emulation_sizes(size):
    with pytest.raises(ValueError, match=r"axis 'data' has size .* whole number"):
        emulate(size)
    with pytest.raises(ValueError, match="no axis"):
        emulate({})


@places
def test_batch_that_does_not_divide(place):
    with pytest.raises(
        ValueError, match=r"batch leaf 'x' has 5 rows.*divide among 2 workers"
    ):
        call(place(2), lambda s, b: (s, {}), to_workers(0, place(2)), {"x": np.ones(5)})


def test_batch_leaf_without_an_axis():
    with pytest.raises(ValueError, match=r"batch leaf 'rate' has no axis.*to_workers"):
        call(emulate(2), lambda s, b: (s, {}), to_workers(0, emulate(2)), {"rate": 0.1})


@places
def test_state_without_a_worker_axis(place):
    (batch,) = helpers.batches(1, 4)
    with pytest.raises(
        ValueError,
        match=r"leaf 'layer1/b' of state argument 0 has shape \(7,\).*relaxjax.init",
    ):
        call(
            place(2),
            helpers.train_step_of(SGD),
            helpers.problem(),
            SGD.init(helpers.problem()),
            batch,
        )


def test_too_few_arguments():
    with pytest.raises(TypeError, match="takes states, then a batch; got 1"):
        call(emulate(2), lambda b: {}, np.zeros(2))


@pytest.mark.parametrize("out", [lambda s: (s,), lambda s: s, lambda s: (s, s, {})])
def test_step_that_returns_something_else(out):
    with pytest.raises(TypeError, match="it must return a tuple of the same states"):
        call(emulate(2), lambda s, b: out(s), to_workers(0, emulate(2)), np.zeros(2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: {"a": s["a"].astype(jnp.bfloat16)}, r"leaf 'a' was float32\[\] and"),
        (lambda s: {"a": s["a"], "b": s["a"]}, "leaf 'b' was absent"),
        (lambda s: [s["a"]], "leaf 'a' was"),
        (lambda s: {"a": s["a"], "none": None}, "PyTreeDef"),
    ],
)
def test_step_that_changes_its_state_in_kind(change, message):
    state = to_workers({"a": 0.0}, emulate(2))
    with pytest.raises(ValueError, match=rf"changed state argument 0: {message}"):
        call(emulate(2), lambda s, b: (change(s), {}), state, np.zeros(2))


def test_a_batch_without_rows_is_refused():
    """Its mean would be NaN; one of several leaves may be empty, as a graph's edges."""
    mesh = emulate(2)
    step = relaxjax.data_parallel(lambda s, b: (s, {"rows": b["x"].sum()}), mesh)
    state = relaxjax.to_workers(np.float32(0), mesh)
    empty, some = np.zeros((0, 3)), np.ones((2, 3))
    with pytest.raises(ValueError, match="the batch has no rows: leaf 'x' has shape"):
        step(state, {"x": empty, "y": empty})
    assert step(state, {"x": some, "y": empty})[1]["rows"] == 3
    shapes = jax.eval_shape(lambda: {"x": some})
    assert step.lower(state, shapes).out_info[1]["rows"].shape == (2,)

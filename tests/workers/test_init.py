"""Start-up: placement, refusals, and how processes compare notes."""

import os
import socket
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import all_reduce, emulate
from relaxjax.workers._startup_agreement import describe, require_agreement
from relaxjax.workers._to_workers import workers_of
from tests import helpers
from tests.helpers import assert_equal, mesh_of

ADAM = optax.chain(all_reduce("data"), optax.adam(1e-2))


@pytest.mark.parametrize("place", [mesh_of, emulate])
def test_every_worker_starts_from_the_same_params(place):
    params, opt_state = relaxjax.init(ADAM, helpers.problem(), place(4))
    assert relaxjax.spread((params, opt_state)) == 0.0
    assert_equal(jax.tree.map(lambda x: x[2], params), helpers.problem())
    for leaf in jax.tree.leaves((params, opt_state)):
        assert leaf.shape[0] == 4


def test_each_device_holds_only_its_own_slice():
    params, opt_state = relaxjax.init(ADAM, helpers.problem(), mesh_of(4))
    for leaf in jax.tree.leaves((params, opt_state)):
        assert [s.data.shape[0] for s in leaf.addressable_shards] == [1, 1, 1, 1]


def test_init_may_ask_for_the_axis():
    def init(params):
        del params
        n, i = jax.lax.axis_size("data"), jax.lax.axis_index("data")
        return {"n": jnp.int32(n), "i": i}

    def update(updates, state, params=None):
        del params
        return updates, state

    tx = optax.GradientTransformation(init, update)
    for place in (mesh_of, emulate):
        _, state = relaxjax.init(tx, helpers.problem(), place(3), reduced_in_step=True)
        np.testing.assert_array_equal(state["n"], [3, 3, 3])
        np.testing.assert_array_equal(state["i"], [0, 1, 2])


def test_explicit_meshes_are_taken():
    mesh = jax.make_mesh((2,), ("data",))  # Explicit axes, JAX's own default
    params, _, _ = helpers.train(ADAM, mesh, helpers.batches(2, 4))
    assert relaxjax.spread(params) == 0.0


def test_leaves_that_nothing_synchronizes():
    mask = {**jax.tree.map(lambda _: True, helpers.problem()), "scale": False}
    tx: Any = optax.chain(optax.masked(all_reduce("data"), mask), optax.sgd(0.1))
    for place in (mesh_of, emulate):
        with pytest.raises(
            ValueError, match=r"nothing synchronizes the updates of \['scale'\]"
        ):
            relaxjax.init(tx, helpers.problem(), place(2))


@pytest.mark.parametrize("algorithm", ["psum", "ring"])
def test_leaves_that_are_local_on_purpose(algorithm):
    reducer = all_reduce("data", algorithm=algorithm)
    labels = jax.tree.map(lambda _: "shared", helpers.problem())
    labels["layer2"]["w"] = "own"
    tx: Any = optax.chain(
        optax.partition({"shared": reducer, "own": relaxjax.local()}, labels),
        optax.sgd(0.1),
    )
    params, _, _ = helpers.train(tx, mesh_of(2), helpers.batches(2, 4))
    own = params["layer2"].pop("w")
    assert relaxjax.spread(params) == 0.0
    assert relaxjax.spread(own) > 0.0


def test_a_reducer_for_every_leaf_is_fine():
    labels = {"layer1": {"w": "a", "b": "b"}, "layer2": {"w": "b"}, "scale": "a"}
    tx: Any = optax.partition(
        {"a": all_reduce("data"), "b": all_reduce("data", algorithm="ring")}, labels
    )
    relaxjax.init(tx, helpers.problem(), mesh_of(2))


def test_an_axis_that_is_not_reduced():
    tx: Any = optax.chain(all_reduce("device"), optax.sgd(0.1))
    with pytest.raises(
        ValueError, match=r"synchronized over \['device'\] but not over \['host'\]"
    ):
        relaxjax.init(tx, helpers.problem(), emulate({"host": 2, "device": 2}))


def test_an_axis_that_is_not_the_meshs():
    tx: Any = optax.chain(all_reduce("batch"), optax.sgd(0.1))
    with pytest.raises(NameError, match="no axis named 'batch' here"):
        relaxjax.init(tx, helpers.problem(), mesh_of(2))


def test_state_specs_and_to_local():
    specs = relaxjax.state_specs({"a": jnp.zeros(3), "b": (jnp.zeros(3),)}, "data")
    assert specs == {
        "a": jax.sharding.PartitionSpec("data"),
        "b": (jax.sharding.PartitionSpec("data"),),
    }
    with pytest.raises(NameError, match="to_local: no axis named 'data'"):
        relaxjax.to_local(jnp.zeros(3), "data")
    same = jax.vmap(lambda x: relaxjax.to_local(x, "data"), axis_name="data")
    assert_equal(same(jnp.arange(3.0)), np.arange(3.0, dtype=np.float32))


def test_keys_are_folded_by_worker_unless_same():
    key = jax.random.key(7)
    keys = jax.random.split(key, 2)
    for place in (mesh_of, emulate):
        folded = relaxjax.to_workers({"k": keys, "n": 3}, place(3))
        assert folded["k"].shape == (3, 2)
        expected = [[jax.random.fold_in(k, i) for k in keys] for i in range(3)]
        for i in range(3):
            for j in range(2):
                assert_equal(
                    jax.random.key_data(folded["k"][i, j]),
                    jax.random.key_data(expected[i][j]),
                )
        same = relaxjax.to_workers(key, place(3), same=True)
        data = np.asarray(jax.random.key_data(same))
        assert (data == np.asarray(jax.random.key_data(key))).all()


def test_sharding_over_other_axes_is_kept():
    mesh = jax.sharding.Mesh(np.reshape(jax.devices()[:4], (2, 2)), ("data", "model"))
    spec = jax.sharding.PartitionSpec(None, "model")
    w = jax.device_put(jnp.ones((3, 4)), jax.sharding.NamedSharding(mesh, spec))
    placed = relaxjax.to_workers(w, mesh, axis_name="data")
    assert placed.addressable_shards[0].data.shape == (1, 3, 2)
    assert relaxjax.consensus(placed).sharding.spec == spec


def test_description_tells_configurations_apart():
    workers = workers_of(emulate(2), None, "test")

    def lines(tx, params):
        return describe(tx, params, workers)

    base = lines(ADAM, helpers.problem())
    assert lines(optax.chain(all_reduce("data"), optax.adam(1e-2)), helpers.problem())
    assert base == lines(
        optax.chain(all_reduce("data"), optax.adam(1e-2)), helpers.problem()
    )
    other_rate = optax.chain(all_reduce("data"), optax.adam(1e-3))
    assert base != lines(other_rate, helpers.problem())
    ring = optax.chain(all_reduce("data", algorithm="ring"), optax.adam(1e-2))
    assert base != lines(ring, helpers.problem())
    assert base["leaf 'layer1/w'"] == "float32[5,7]"

    def needs_more(updates, state, params=None, *, value):
        return jax.tree.map(lambda u: u * value, updates), state

    make: Any = optax.GradientTransformationExtraArgs
    more = make(optax.init_empty_state, needs_more)
    assert lines(more, helpers.problem())
    require_agreement(ADAM, helpers.problem(), workers)  # one process: nothing to do


PROCESS = """
import sys
import jax, numpy as np, optax, relaxjax
port, rank, case = sys.argv[1], int(sys.argv[2]), sys.argv[3]
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank)
mesh = jax.make_mesh((4,), ("data",))
width = 5 if case == "shape" and rank == 1 else 4
rate = 0.2 if case == "config" and rank == 1 else 0.1
value = 1.0 + rank  # processes start from different values: process 0's must win
params = {"w": np.full((3, width), value, np.float32)}
tx = optax.chain(relaxjax.all_reduce("data"), optax.sgd(rate))
try:
    params, opt_state = relaxjax.init(tx, params, mesh)
except ValueError as error:
    print(error, flush=True)
    sys.exit(3)
def train_step(params, opt_state, batch):
    loss, grads = jax.value_and_grad(lambda p: ((batch @ p["w"]) ** 2).mean())(params)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, {"loss": loss}
step = relaxjax.data_parallel(train_step, mesh)
rows = np.arange(24, dtype=np.float32).reshape(8, 3)[rank * 4:(rank + 1) * 4] / 10
rows = rows[:2] if case == "batch" and rank == 1 else rows
for _ in range(3):
    try:
        params, opt_state, metrics = step(params, opt_state, rows + 0.1)
    except ValueError as error:
        print(error, flush=True)
        sys.exit(3)
model = relaxjax.consensus(params)
print(relaxjax.spread(params), float(metrics["loss"]), float(model["w"].sum()))
"""


def two_processes(case: str) -> list[tuple[int, str, str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_PREEMPTION_SERVICE": "0",
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(port), str(rank), case],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=180) for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(p.returncode, *out) for p, out in zip(processes, outputs, strict=True)]


@pytest.mark.long
def test_two_processes_start_from_process_zero_and_agree():
    results = two_processes("same")
    assert [code for code, _, _ in results] == [0, 0], results
    last_lines = [out.splitlines()[-1] for _, out, _ in results]  # gloo prints too
    assert last_lines[0] == last_lines[1]
    spread, loss, total = map(float, last_lines[0].split())
    assert spread == 0.0
    # One process alone on the same rows, from the ones of process 0.
    rows = np.arange(24, dtype=np.float32).reshape(8, 3) / 10 + 0.1
    w, last = np.ones((3, 4), np.float64), np.nan
    for _ in range(3):
        out = rows @ w
        last = np.mean(out**2)
        w -= 0.1 * 2 * rows.T @ out / out.size
    assert loss == pytest.approx(last, rel=1e-5)
    assert total == pytest.approx(w.sum(), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "shape",
            "processes disagree on leaf 'w': process 0 has float32[3,4], "
            "process 1 has float32[3,5]",
        ),
        ("config", "processes disagree on the configuration of the transformation"),
        (
            "batch",
            "data_parallel: processes disagree on batch leaf '': process 0 has "
            "float32[4,3], process 1 has float32[2,3]",
        ),
    ],
)
def test_two_processes_that_disagree_stop_with_the_same_error(case, message):
    for code, out, err in two_processes(case):
        assert code == 3, err[-2000:]
        assert message in out

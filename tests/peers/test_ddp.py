"""PyTorch's DDP and its hooks, step by step beside relaxjax.

Three processes over gloo compute once (`tests.peers.ddp`); emulated workers here get
the same gradients. Everything is float32 on both sides.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression
from tests.peers import numbers
from tests.peers.numbers import PERIOD, PLAIN, RATE, STEPS, WARM_UP, WORKERS

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(
    find_spec("torch") is None, reason="python3 scripts/check.py --peers installs torch"
)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Arrays by name, [workers, ...]."""
    folder = tmp_path_factory.mktemp("ddp")
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.peers.ddp", str(rank), str(folder)],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for rank in range(WORKERS)
    ]
    assert [process.wait(300) for process in processes] == [0] * WORKERS
    files = [np.load(folder / f"{rank}.npz") for rank in range(WORKERS)]
    return {name: np.stack([file[name] for file in files]) for name in files[0].files}


def stacked(trees):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def gradients(step):
    return stacked([numbers.gradient(worker, step) for worker in range(WORKERS)])


def on_workers(function):
    return jax.jit(jax.vmap(function, axis_name="data"))


def begun(tx):
    """Params and state of all workers."""
    params = stacked([numbers.draw(99)] * WORKERS)
    return params, on_workers(tx.init)(params)


def require_close(theirs, case, step, ours, **tolerance):
    for name, value in ours.items():
        said = theirs[f"{case}/{step}/{name}"]
        where = f"{case}, step {step}, {name}"
        np.testing.assert_allclose(np.asarray(value), said, err_msg=where, **tolerance)


@pytest.mark.parametrize(
    ("case", "tx", "tolerance"),
    [
        # Sums of three numbers in another order.
        ("mean", relaxjax.all_reduce("data"), {"rtol": 1e-5, "atol": 1e-6}),
        # The hook divides, adds and answers in half precision, ours decodes and adds in
        # float32: each of their roundings is 2^-11 of what it rounds, at most 4 here.
        (
            "fp16",
            relaxjax.all_reduce(
                "data", algorithm="two_shot", compressor=compression.cast(jnp.float16)
            ),
            {"rtol": 2e-3, "atol": 4e-3},
        ),
    ],
    ids=["mean", "fp16"],
)
def test_means(theirs, case, tx, tolerance):
    params, state = begun(tx)
    update = on_workers(tx.update)
    for step in range(STEPS):
        ours, state = update(gradients(step), state, params)
        require_close(theirs, case, step, ours, **tolerance)


def test_power_sgd_from_the_same_state(theirs):
    """Their Q is drawn otherwise, so ours begins with theirs after one step of it."""
    tx = relaxjax.power_sgd(
        "data", rank=2, as_matrices=lambda name, shape: (1, shape[0], shape[1]), seed=0
    )
    params, state = begun(tx)
    update = on_workers(tx.update)

    def given(kind, like):
        leaves = {k: theirs.get(f"{kind}/{PLAIN}/{k}") for k in like}
        return {k: like[k] if np.ndim(like[k]) == 1 else leaves[k] for k in like}

    residual, right = given("residual", state.residual), given("right", state.right)
    state = state._replace(residual=residual, right=right)
    for step in range(PLAIN + 1, STEPS):
        ours, state = update(gradients(step), state, params)
        require_close(theirs, "power_sgd", step, ours, rtol=1e-4, atol=1e-5)
        kept = {k: e for k, e in state.residual.items() if e.ndim > 1}
        assert kept.keys() == {"w", "v"}
        require_close(theirs, "residual", step, kept, rtol=1e-4, atol=1e-5)


def test_post_local_sgd(theirs):
    """Their first round has one step: a mean of models one step after equal ones.

    For plain SGD that is a step with the mean gradient, so ours switches a step later.
    """
    tx = relaxjax.post_local_sgd(optax.sgd(RATE), "data", PERIOD, WARM_UP + 1)
    params, state = begun(tx)
    targets = stacked([numbers.draw(worker) for worker in range(WORKERS)])

    def train_step(params, state, targets):
        grads = jax.tree.map(jnp.subtract, params, targets)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    step = on_workers(train_step)
    differed = []
    for t in range(STEPS):
        params, state = step(params, relaxjax.advance_phases(state), targets)
        require_close(theirs, "post_local_sgd", t, params, rtol=1e-5, atol=1e-6)
        differed.append(bool(np.ptp(theirs[f"post_local_sgd/{t}/w"], axis=0).max()))
    assert True in differed[WARM_UP:]
    assert False in differed[WARM_UP + 1 :]


def test_parameter_server_is_zero_redundancy(theirs):
    """Adam's state at servers, and in `ZeroRedundancyOptimizer`: the same steps."""
    tx = relaxjax.parameter_server(optax.adam(RATE), "data")
    params, state = begun(tx)

    def train_step(params, state, grads):
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    step = on_workers(train_step)
    for t in range(STEPS):
        params, state = step(params, state, gradients(t))
        require_close(theirs, "zero", t, params, rtol=1e-4, atol=1e-5)

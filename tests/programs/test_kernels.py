"""Kinds of kernels: a program of more leaves that are alike has no more of them.

XLA for CPU compiles computations once that differ in their operands alone, and most of
the time before a first step is spent there. A slice at a constant, a leaf's number in a
key, or one large fusion of all leaves is a kind for each leaf.
"""

import re
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import relaxjax
from relaxjax import (
    all_reduce,
    diloco,
    emulate,
    gossip,
    local_sgd,
    parameter_server,
    power_sgd,
    topology,
)
from relaxjax.compression import error_feedback, quantize, top_k
from tests.helpers import mesh_of

RING = topology.ring(2)
ROWS: dict[str, Any] = {
    "all_reduce": lambda: all_reduce("data"),
    "ring": lambda: all_reduce("data", algorithm="ring"),
    "8 bits": lambda: all_reduce("data", compressor=error_feedback(quantize(8))),
    "top-k": lambda: all_reduce("data", compressor=error_feedback(top_k(0.1))),
    "power_sgd": lambda: power_sgd("data", rank=2),
    "power_sgd in 8 bits": lambda: power_sgd("data", rank=2, bits=8),
    "local_sgd": lambda: optax.chain(optax.sgd(0.1), local_sgd("data", 4)),
    "diloco": lambda: diloco(optax.adam(0.1), "data", 4),
    "parameter_server": lambda: parameter_server(optax.sgd(0.1), "data"),
    "gossip": lambda: optax.chain(optax.sgd(0.1), gossip("data", RING)),
}


def kinds(tx: Any, layers: int) -> int:
    """The computations of the compiled step of two workers that are not alike."""
    params = {
        f"{i}": {"w": jnp.ones((24, 16)), "b": jnp.ones(16)} for i in range(layers)
    }
    two = jax.tree.map(lambda x: jnp.stack([x, 2 * x]), params)
    state = jax.vmap(tx.init, axis_name="data")(two)
    step = jax.jit(jax.vmap(tx.update, axis_name="data"))
    text = str(step.lower(two, state, two).compile().as_text())
    return len({plain(part) for part in text.split("\n\n") if "{\n" in part})


def plain(computation: str) -> str:
    """Its instructions, with numbers for names and without remarks."""
    body = computation.split("{\n", 1)[1]
    body = re.sub(r", (metadata|backend_config)=\{.*?\}(?=,|\n|$)", "", body)
    names: dict[str, str] = {}
    return re.sub(r"%[\w.-]+", lambda m: names.setdefault(m[0], str(len(names))), body)


@pytest.mark.skipif(
    jax.__version_info__ < (0, 11), reason="XLA of jax 0.10 compiles some for each leaf"
)
@pytest.mark.few(12)
@pytest.mark.parametrize("name", ROWS)
def test_twice_as_many_layers_are_no_more_kinds_of_kernels(name):
    few, many = (kinds(ROWS[name](), layers) for layers in (6, 12))
    assert many <= few + 3


def stepped(tx: Any, mesh: Any) -> tuple[Any, ...]:
    """A donated step of three square layers, and its arguments."""
    params, state = relaxjax.init(tx, {f"{i}": jnp.ones((48, 48)) for i in "abc"}, mesh)

    def loss(params: Any, x: jax.Array) -> jax.Array:
        for w in params.values():
            x = jnp.tanh(x @ w)
        return jnp.mean(x**2)

    def step(params: Any, state: Any, x: jax.Array) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, {"loss": value}

    run = relaxjax.data_parallel(step, mesh, donate=True)
    return run, params, state, jnp.ones((8, 48))


@pytest.mark.parametrize("place", [mesh_of, emulate], ids=["mesh", "emulated"])
def test_an_optimizer_reads_no_sum_across_its_rows(place):
    """A strided read in each of its kernels doubled the time of a wide model's step."""
    step, *state = stepped(optax.chain(all_reduce("data"), optax.adam(0.1)), place(2))
    kernels = str(step.lower(*state).compile().as_text()).split("\n\n")
    roots = [kernel for kernel in kernels if " sqrt(" in kernel]
    assert len(roots) >= 1
    assert not any(" transpose(" in kernel for kernel in roots)


@pytest.mark.skipif(
    jax.__version_info__ < (0, 11), reason="XLA of jax 0.10 opens barriers too early"
)
@pytest.mark.parametrize("name", ["all_reduce", "8 bits"])
def test_donated_state_is_not_copied(name):
    """The worker axis, once fused into the kernels, had all moments copied."""
    step, *state = stepped(optax.chain(ROWS[name](), optax.adam(0.1)), mesh_of(2))
    text = str(step.lower(*state).compile().as_text())
    assert not re.findall(r"f32\[1,48,48\]\S* copy\(", text)

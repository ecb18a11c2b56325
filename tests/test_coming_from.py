"""Coming from: what stands after its arrows can be pasted."""

import ast
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import relaxjax
from relaxjax import compression, topology
from tests.collectives import references

PAGE = (Path(__file__).parent.parent / "docs" / "coming_from.md").read_text()
LISTS = PAGE.partition("\n## Requests")[0]
RIGHT = re.findall(r"^  → (.*)", LISTS, flags=re.MULTILINE)
LINES = sorted({x for cell in RIGHT for x in re.findall(r"`([^`]*\([^`]*)`", cell)})
PARAMS = {
    "w": jnp.ones((32, 16)),
    "v": jnp.ones((32, 16)),
    "b": jnp.ones(16),
    "c": jnp.ones(16),
}


def run(line: str) -> object:
    """The value of a line in a step of eight workers, on one or two axes."""
    sizes = {"host": 2, "device": 4} if '"host"' in line else {"data": 8}
    mesh = relaxjax.emulate(sizes)
    tx = optax.chain(relaxjax.all_reduce(tuple(sizes)), optax.adamw(1e-3))
    names = {"optax": optax, "relaxjax": relaxjax, "jax": jax, "jnp": jnp, "nnx": nnx}
    names |= {"compression": compression, "topology": topology, "mesh": mesh}
    names |= {"hosts": relaxjax.hosts, "params": PARAMS, "count": 2, "tx": tx}
    names |= {"optimizer": optax.adamw(1e-3), "rngs": nnx.Rngs(0)}
    if "consensus(" in line or "spread(" in line:  # of all workers' params
        names["params"] = relaxjax.to_workers(PARAMS, mesh)
    names |= {"train_step": lambda params, batch: (params, {}), "batch_stats": PARAMS}
    inside = "tx.update(" in line
    value = tx if inside else eval(line.rpartition(" = ")[2], names)
    if not isinstance(value, optax.GradientTransformation):
        return value

    def train_step(params, opt_state, batch):
        grads = jax.tree.map(lambda p: p * batch.mean(), params)
        updates, opt_state = (
            eval(line, names | locals())
            if inside
            else value.update(grads, opt_state, params)
        )
        return optax.apply_updates(params, updates), opt_state, {}

    params, opt_state = relaxjax.init(value, PARAMS, mesh)
    step = relaxjax.data_parallel(train_step, mesh)
    return step.lower(params, opt_state, jnp.ones((16, 32)))


def line_of(name: str) -> str:
    """The code after the arrow of a row."""
    row = re.search(rf"^- `{re.escape(name)}`[^\n]*\n  → `([^`]*)`", PAGE, re.MULTILINE)
    assert row is not None
    return row.group(1)


def test_adasum_is_horovods():
    """Each rank steps by itself, with its own momentum, and the steps are combined."""
    optimizer = optax.sgd(0.1, momentum=0.9)
    names = {"optax": optax, "relaxjax": relaxjax, "optimizer": optimizer}
    tx = eval(line_of("op=hvd.Adasum"), names)
    grads = np.random.default_rng(0).normal(size=(4, 3, 6)).astype(np.float32)

    def run(grads):
        updates, state = [], tx.init(jnp.zeros(6))
        for g in grads:
            u, state = tx.update(g, state, jnp.zeros(6))
            updates.append(u)
        return jnp.stack(updates)

    found = jax.jit(jax.vmap(run, axis_name="data"))(grads)
    momentum = np.zeros((4, 6))
    for step in range(3):
        momentum = grads[:, step] + 0.9 * momentum
        expected = references.adasum(list(-0.1 * momentum))
        np.testing.assert_allclose(found[0, step], expected, rtol=1e-4, atol=1e-6)


def test_lists_have_lines():
    assert len(LINES) > 30
    assert len(RIGHT) > 40


@pytest.mark.few(6)
@pytest.mark.parametrize("line", LINES)
def test_a_line_traces_in_a_step(line):
    ast.parse(line)
    assert run(line) is not None

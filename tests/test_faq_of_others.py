"""The FAQ quotes messages of other packages that programs really end in."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.serialization
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import relaxjax

PAGE = (Path(__file__).parents[1] / "docs" / "faq.md").read_text()
QUOTED = {
    text
    for line in re.findall(r"^### (?:JAX|optax|flax): (.*)$", PAGE, flags=re.MULTILINE)
    for text in re.findall(r"`(.+?)`", line)
}
PARAMS = {"w": jnp.ones((4, 4)), "b": jnp.ones(4)}
TX = optax.chain(relaxjax.power_sgd("data", rank=1, start_after=1), optax.sgd(0.1))
BATCH = jnp.ones((4, 4))


def mesh_of(kind: AxisType) -> Any:
    devices = jax.devices()[:2]
    return jax.make_mesh((2,), ("data",), axis_types=(kind,), devices=devices)


AUTO = mesh_of(AxisType.Auto)


def update(params: Any, state: Any, batch: Any, tx: Any = TX) -> Any:
    """A step for one device."""

    def loss(p: Any) -> Any:
        return jnp.mean((batch @ p["w"] + p["b"] - 1) ** 2)

    updates, state = tx.update(jax.grad(loss)(params), state, params)
    return optax.apply_updates(params, updates), state


def mapped(fn: Callable[..., Any], state: Any, specs: Any, mesh: Any = AUTO) -> Any:
    """The state after a step in a `jax.shard_map` of one's own."""
    where = {"in_specs": (specs, P("data")), "out_specs": specs}
    return jax.jit(jax.shard_map(fn, mesh=mesh, **where))(state, BATCH)


def stacked(state: Any, batch: Any) -> Any:
    """The step that is in `docs/concepts.md`."""
    params, opt_state = jax.tree.map(lambda x: x[0], state)
    return jax.tree.map(lambda x: x[None], update(params, opt_state, batch))


def in_a_context() -> None:
    mesh = mesh_of(AxisType.Explicit)
    with jax.set_mesh(mesh):
        relaxjax.init(TX, PARAMS, mesh)


def on_explicit_axes() -> None:
    mesh = mesh_of(AxisType.Explicit)
    mapped(stacked, relaxjax.init(TX, PARAMS, mesh), P("data"), mesh)


def whole(state: Any, batch: Any) -> Any:
    params = relaxjax.to_local(state[0], "data")
    return update(params, state[1], batch)


def of_nobody() -> None:
    mapped(whole, (PARAMS, TX.init(PARAMS)), P())


def with_workers() -> None:
    mapped(whole, (PARAMS, relaxjax.init(TX, PARAMS, AUTO)[1]), P())


def broadcast() -> None:
    tx = optax.chain(relaxjax.all_reduce("data"), optax.adam(0.1))

    def step(state: Any, batch: Any) -> Any:
        return update(relaxjax.to_local(state[0], "data"), state[1], batch, tx)

    mapped(step, (PARAMS, relaxjax.init(tx, PARAMS, AUTO)[1]), P())


def unreduced() -> None:
    tx = optax.chain(optax.sgd(0.1), relaxjax.local_sgd("data", 4))

    def step(w: Any, state: Any, x: Any) -> Any:
        fn: Any = jax.grad(lambda w: jnp.mean((x @ w) ** 2))
        return tx.update(fn(relaxjax.unreduced(w, "data")), state, w)

    with jax.set_mesh(mesh_of(AxisType.Explicit)):
        w, x = jax.device_put((jnp.ones(4), BATCH), (P(), P("data")))
        jax.jit(step)(w, tx.init(w), x)


def another_chain() -> None:
    state = relaxjax.init(TX, PARAMS, AUTO)[1]
    longer = optax.chain(TX, optax.clip(1.0), optax.scale(1.0))
    longer.update(PARAMS, state)


def to_bytes() -> None:
    flax.serialization.to_bytes(relaxjax.init(TX, PARAMS, AUTO)[1])


ENDS: dict[str, Callable[[], None]] = {
    "The context mesh … should match the mesh passed to shard_map": in_a_context,
    "in_specs passed to shard_map: … does not match the specs of the input": (
        on_explicit_axes
    ),
    "given out_specs which require replication which can't be statically inferred": (
        of_nobody
    ),
    "cannot reshape array of shape …": with_workers,
    "Incompatible shapes for broadcasting": broadcast,
    "LHS should be reduced along the same axes RHS is unreduced on": unreduced,
    "The number of updates and states has to be the same in chain": another_chain,
    "can not serialize 'Clock' object": to_bytes,
}


def test_each_message_has_a_program():
    assert set(ENDS) == QUOTED


@pytest.mark.parametrize("quoted", ENDS)
def test_a_program_ends_in_what_is_quoted(quoted):
    pattern = ".*".join(map(re.escape, quoted.split("…")))
    with pytest.raises(Exception, match=pattern):
        ENDS[quoted]()


def test_the_specs_of_worker_state_are_the_remedy():
    state = relaxjax.init(TX, PARAMS, AUTO)
    places = relaxjax.state_specs(state, "data")
    found, like = state, state
    step = relaxjax.data_parallel(lambda p, s, b: (*update(p, s, b), {}), AUTO)
    for _ in range(3):
        found = mapped(stacked, found, places)
        like = step(*like, BATCH)[:2]
    for one, other in zip(*map(jax.tree.leaves, (found, like)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_the_lines_for_flax_keep_a_clock(monkeypatch):
    known = dict(vars(flax.serialization)["_STATE_DICT_REGISTRY"])
    monkeypatch.setattr("flax.serialization._STATE_DICT_REGISTRY", known)
    (lines,) = re.findall(r"```python\n(flax\..*?)```", PAGE, flags=re.DOTALL)
    exec(lines, {"flax": flax, "relaxjax": relaxjax, "dataclasses": dataclasses})
    step = relaxjax.data_parallel(lambda p, s, b: (*update(p, s, b), {}), AUTO)
    first: Any = relaxjax.init(TX, PARAMS, AUTO)
    state = first
    for _ in range(2):
        state = step(*state, BATCH)[:2]
    again: Any = flax.serialization.from_bytes(
        first, flax.serialization.to_bytes(state)
    )
    assert again[1][0].clock.count.tolist() == [2, 2]
    ends = (step(*some, BATCH)[:2] for some in (state, again))
    for one, other in zip(*map(jax.tree.leaves, ends), strict=True):
        np.testing.assert_array_equal(one, other)

"""Whole methods as eight H100s would run them: messages, kinds and bytes."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import relaxjax
from benchmarks.programs.ahead_of_time import compiled_text, state_shapes
from relaxjax import Clock, diloco, one_bit_adam, power_sgd, wire_bytes
from relaxjax._core._cond import when
from relaxjax._core._phases import hosted
from relaxjax.programs import bytes_sent, parse
from relaxjax.workers._batches import placed
from tests.compiled_text import by_condition
from tests.gpu.programs import collectives, update_text

PARAMS = {
    "w": jax.ShapeDtypeStruct((96, 64), jnp.float32),
    "v": jax.ShapeDtypeStruct((64, 32), jnp.float32),
    "b": jax.ShapeDtypeStruct((32,), jnp.float32),
}


def in_last_phase(tx: Any) -> optax.GradientTransformation:
    """Its states are those of the last phase from the first step on."""

    def last(x: Any) -> Any:
        return x.at(max(x.ends)) if isinstance(x, Clock) else x

    def init(params):
        state = tx.init(params)
        return jax.tree.map(last, state, is_leaf=lambda x: isinstance(x, Clock))

    return optax.GradientTransformation(init, tx.update)


@pytest.mark.parametrize("sync_every", [2, 4])
def test_a_silent_step_of_diloco_sends_and_copies_nothing(mesh, sync_every):
    """Anchor and momentum stay in their memory: no kernel for each leaf."""
    params = {f"w{i}": PARAMS["w"] for i in range(4)}
    tx: Any = diloco(optax.sgd(0.1), "data", sync_every)

    def step(params, opt_state, batch):
        updates, opt_state = tx.update(params, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"x": batch.sum()}

    state = state_shapes(tx, params, mesh.size)
    batch = jax.ShapeDtypeStruct((mesh.size,), jnp.float32)
    run = relaxjax.data_parallel(step, mesh, donate=True)
    text = compiled_text(run, *state, batch)
    always, in_turns = by_condition(text)
    assert not always
    assert in_turns
    bodies = parse(text).computations.values()
    copied = [i for body in bodies for i in body if i.opcode.startswith("copy")]
    assert not [i for i in copied if "96,64" in i.shape]


def test_a_silent_step_need_not_ask_the_device(mesh):
    """On GPUs the host takes a program without a loop where nothing is due."""
    tx: Any = diloco(optax.sgd(0.1), "data", 4)

    def step(params, opt_state, batch):
        updates, opt_state = tx.update(params, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"x": batch.sum()}

    state = state_shapes(tx, PARAMS, mesh.size)
    batch = jax.ShapeDtypeStruct((mesh.size,), jnp.float32)
    run = relaxjax.data_parallel(step, mesh)
    asks = compiled_text(run, *state, batch)
    silent = compiled_text(
        run._programs.silent, placed(tuple(state), run._workers), batch
    )
    assert " while(" in asks
    assert " while(" not in silent
    assert not by_condition(silent)[0]


def test_power_sgd_calls_no_library_for_its_bases(mesh):
    tx: Any = power_sgd("data", rank=2)
    assert "cusolver" not in update_text(tx, PARAMS, mesh)


def test_what_no_turn_changes_is_not_sent_in_silent_steps(mesh):
    """XLA moves it out of the loop, unless it depends on the loop's flag."""

    def body(due, x, y):
        return when(due, lambda x, y: x + lax.psum(y, "data"), x, y)

    specs = P(), P("data"), P("data")
    run = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=specs, out_specs=P("data")))
    whole = jax.ShapeDtypeStruct((mesh.size, 64), jnp.float32)
    text = compiled_text(run, jax.ShapeDtypeStruct((), bool), whole, whole)
    always, in_turns = by_condition(text)
    assert not always
    assert len(in_turns) == 1


def test_power_sgd_sends_two_messages(mesh):
    tx: Any = power_sgd("data", rank=2)
    text = update_text(tx, PARAMS, mesh)
    first, second = 2 * (96 + 64) + 32, 2 * (64 + 32)
    assert collectives(text) == [
        ("all-reduce", f"f32[{first}]"),
        ("all-reduce", f"f32[{second}]"),
    ]
    assert int(bytes_sent(text).max()) == wire_bytes(tx, PARAMS, mesh)


def test_one_bit_adam_sends_bytes_of_signs(mesh):
    tx: Any = one_bit_adam("data", 1e-3, freeze_step=1)
    frozen = in_last_phase(tx)

    def init(params):  # where the variance is 0, nothing would travel
        return optax.tree.set(frozen.init(params), nu=optax.tree.ones_like(params))

    seen = optax.GradientTransformation(init, frozen.update)
    found = collectives(update_text(seen, PARAMS, mesh))
    signs = -(-(96 * 64 + 64 * 32) // 8) // 8 + 4  # of an eighth, and its scale
    payloads = [shape for kind, shape in found if kind != "all-reduce"]
    assert payloads
    assert all(shape.startswith("u8[") for shape in payloads)
    assert any(str(signs) in shape for shape in payloads)
    assert ("all-reduce", "f32[32]") in found  # the vector


def in_first_phase(tx: Any) -> optax.GradientTransformation:
    """As in a loop whose host sets the phases, at its first step."""
    return optax.GradientTransformation(
        lambda params: hosted(tx.init(params)), tx.update
    )


def test_phases_are_programs_of_their_own(mesh):
    tx: Any = power_sgd("data", rank=2, start_after=1)
    whole, low, both = (
        collectives(update_text(t, PARAMS, mesh))
        for t in (in_first_phase(tx), in_last_phase(tx), tx)
    )
    assert len(low) == 2
    assert len(whole) == 1
    assert sorted(both) == sorted(whole + low)  # nobody sets them: one of two branches

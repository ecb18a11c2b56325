"""Whole methods as eight H100s would run them: messages, kinds and bytes."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from relaxjax import Clock, one_bit_adam, power_sgd, wire_bytes
from relaxjax._core._phases import hosted
from relaxjax.programs import bytes_sent
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

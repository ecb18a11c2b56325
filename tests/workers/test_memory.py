"""Pages that compiling leaves free are given back, once for each program."""

import ctypes
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax._core.foreign import _memory

TX = optax.chain(relaxjax.power_sgd("data", rank=1, start_after=2), optax.sgd(0.1))


def step(params, state, rows):
    updates, state = TX.update({"w": params["w"] * rows.mean()}, state, params)
    return optax.apply_updates(params, updates), state, {}


def trained(steps: int) -> None:
    mesh, params = relaxjax.emulate(2), {"w": jnp.ones((32, 32))}
    state: Any = relaxjax.init(TX, params, mesh)
    train = relaxjax.data_parallel(step, mesh)
    for _ in range(steps):
        *state, _ = train(*state, np.ones((2, 1), np.float32))


@pytest.mark.parametrize(("many", "times"), [(2**13, 2), (2**20, 0)])
def test_once_for_each_program_of_a_large_state(many, times, monkeypatch):
    calls = []

    class Library:
        def __init__(self, name):
            assert name is None

        malloc_trim = staticmethod(calls.append)

    monkeypatch.setattr(ctypes, "CDLL", Library)
    monkeypatch.setattr(_memory, "MANY", many)
    trained(5)  # the warm-up and what follows it are two programs
    assert calls == [0] * times


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_another_allocator_is_left_alone(error, monkeypatch):
    def absent(name):
        raise error(name)

    monkeypatch.setattr(ctypes, "CDLL", absent)
    monkeypatch.setattr(_memory, "MANY", 0)
    trained(1)

"""Pieces of a flat array: where they are cut, and what a compiler sees of it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax._core._pieces import cut, starts_of


@pytest.mark.parametrize("shapes", [[], [()], [(2,), (0,), (3, 1)], [(4, 2), (0,)] * 6])
def test_pieces_are_those_of_numpy(shapes):
    sizes = [int(np.prod(shape)) for shape in shapes]
    flat = np.arange(sum(sizes) + 2, dtype=np.float32)  # more than they need
    parts = jax.jit(lambda x: cut(x, shapes))(flat)
    for part, there, shape in zip(parts, np.cumsum([0, *sizes]), shapes, strict=False):
        want = flat[there : there + part.size].reshape(shape)
        np.testing.assert_array_equal(part, want)
    assert len(parts) == len(shapes)


def test_pieces_of_more_elements_than_int32_counts_start_at_numbers():
    assert starts_of([2**31, 5]) == [0, 2**31]


def test_alike_pieces_are_compiled_once_on_cpu():
    """Each of them would else be a kernel of its own, and what is fused with it."""

    def kernels(program: Any, *args: Any) -> int:
        text = str(jax.jit(program).lower(*args).compile().as_text())
        bodies = [part.split("\n", 1)[1] for part in text.split("\n\n") if "\n" in part]
        return sum(
            "fused_computation" not in body and "slice=" in body for body in bodies
        )

    flat, shapes = jnp.ones(400), [(4,)] * 100
    seen = [(4 * i, 4 * i + 4) for i in range(100)]
    assert kernels(lambda x: [2 * x[a:b] for a, b in seen], flat) >= 100
    assert kernels(lambda x: [2 * part for part in cut(x, shapes)], flat) == 0


def test_no_piece_is_asked_whether_it_starts_below_zero():
    shapes = [(4,)] * 100
    text = str(jax.make_jaxpr(lambda x: cut(x, shapes))(jnp.ones(400)))
    assert text.count("dynamic_slice") == 100
    assert " lt " not in text
    assert "select_n" not in text


def test_gradients_pass_through():
    weights = jnp.arange(1.0, 6.0)

    def loss(x):
        a, b = cut(x, [(2,), (3,)])
        return jnp.vdot(weights[:2], a) + jnp.vdot(weights[2:], b)

    np.testing.assert_array_equal(jax.grad(loss)(jnp.ones(5)), weights)

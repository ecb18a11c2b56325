"""Every all-reduce over one axis against its reference, and its bytes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxjax import collectives, compiled_wire_bytes, emulate, wire_bytes
from tests.collectives import references
from tests.collectives.mappings import (
    MAPPINGS,
    as_transformation,
    assert_same,
    by_mesh,
    by_typed_mesh,
    by_vmap,
    draw,
    lower_on_mesh,
    mapped_on_mesh,
    typed_on_mesh,
)
from tests.helpers import mesh_of, optimized_hlo


def log2_up(n: int) -> int:
    return (n - 1).bit_length()


class Algorithm(NamedTuple):
    all_reduce: Any
    wire_bytes: Any
    reference: Callable[[list[np.ndarray]], np.ndarray]
    roundings: Callable[[int], int]  # as the docstring says


ALGORITHMS = {
    "ring": Algorithm(
        collectives.ring_all_reduce,
        collectives.ring_wire_bytes,
        references.ring,
        lambda n: n - 1,
    ),
    "bidirectional_ring": Algorithm(
        collectives.bidirectional_ring_all_reduce,
        collectives.bidirectional_ring_wire_bytes,
        references.bidirectional_ring,
        lambda n: n - 1,
    ),
    "halving_doubling": Algorithm(
        collectives.halving_doubling_all_reduce,
        collectives.halving_doubling_wire_bytes,
        references.halving_doubling,
        log2_up,
    ),
    "tree": Algorithm(
        collectives.tree_all_reduce,
        collectives.tree_wire_bytes,
        references.tree,
        log2_up,
    ),
    "two_shot": Algorithm(
        collectives.two_shot_all_reduce,
        collectives.two_shot_wire_bytes,
        references.rounded_once,
        lambda n: 1,
    ),
    "one_shot": Algorithm(
        collectives.one_shot_all_reduce,
        collectives.one_shot_wire_bytes,
        references.rounded_once,
        lambda n: 1,
    ),
}
every = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=ALGORITHMS)


@pytest.mark.few(4)
@every
@pytest.mark.parametrize(
    "n",
    [
        pytest.param(n, marks=[] if n in (1, 2, 3, 5, 8, 16) else [pytest.mark.slow])
        for n in range(1, 17)
    ],
)
def test_every_worker_count(algorithm, n):
    blocks = draw(n, (19,), np.float32)
    expected = algorithm.reference(list(blocks))
    assert_same(by_vmap(algorithm.all_reduce, blocks), expected)


@pytest.mark.few(3)
@every
@pytest.mark.parametrize("n", [3, 8])
@pytest.mark.parametrize("where", MAPPINGS)
def test_every_mapping(algorithm, n, where):
    blocks = draw(n, (3, 5), jnp.bfloat16)
    expected = algorithm.reference(list(blocks))
    assert_same(MAPPINGS[where](algorithm.all_reduce, blocks), expected)


@pytest.mark.slow
@every
@pytest.mark.parametrize("n", range(1, 17))
@pytest.mark.parametrize("where", ["mesh", "typed mesh"])
def test_every_worker_count_on_devices(algorithm, n, where):
    blocks = draw(n, (19,), np.float32)
    expected = algorithm.reference(list(blocks))
    assert_same(MAPPINGS[where](algorithm.all_reduce, blocks), expected)


@pytest.mark.few(3)
@every
@pytest.mark.parametrize(
    ("n", "shape"), [(1, (3,)), (5, ()), (5, (2, 0, 4)), (5, (1,)), (1, (0,))]
)
def test_small_and_empty_shapes(algorithm, n, shape):
    blocks = draw(n, shape, np.float32)
    expected = algorithm.reference(list(blocks))
    assert_same(by_vmap(algorithm.all_reduce, blocks), expected)
    assert_same(by_mesh(algorithm.all_reduce, blocks), expected)
    assert_same(by_typed_mesh(algorithm.all_reduce, blocks), expected)


@pytest.mark.long
@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    name=st.sampled_from(sorted(ALGORITHMS)),
    n=st.integers(1, 16),
    shape=st.lists(st.integers(0, 6), max_size=3).map(tuple),
    dtype=st.sampled_from(
        [
            np.float32,
            jnp.bfloat16,
            np.float16,
            jnp.float8_e4m3fn,
            jnp.float8_e5m2,
            np.int32,
            np.uint8,
            np.complex64,
        ]
    ),
    seed=st.integers(0, 2**16),
)
def test_any_shape_dtype_and_worker_count(name, n, shape, dtype, seed):
    algorithm = ALGORITHMS[name]
    blocks = np.abs(draw(n, shape, np.float32, seed)).astype(dtype)
    expected = algorithm.reference(list(blocks))
    assert_same(by_vmap(algorithm.all_reduce, blocks), expected)


@pytest.mark.few(3)
@every
@pytest.mark.parametrize("dtype", [jnp.float8_e4m3fn, np.int8, np.complex64])
def test_dtypes_on_devices(algorithm, dtype):
    blocks = draw(3, (7,), dtype)
    expected = algorithm.reference(list(blocks))
    assert_same(by_mesh(algorithm.all_reduce, blocks), expected)
    assert_same(by_typed_mesh(algorithm.all_reduce, blocks), expected)


@pytest.mark.few(2)
@every
def test_float64(algorithm):
    with jax.enable_x64(True):
        blocks = draw(3, (10,), np.float64)
        expected = algorithm.reference(list(blocks))
        assert_same(by_vmap(algorithm.all_reduce, blocks), expected)
        assert_same(by_typed_mesh(algorithm.all_reduce, blocks), expected)


@pytest.mark.few(2)
@every
@pytest.mark.parametrize("n", [2, 7, 16])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_error_within_the_stated_roundings(algorithm, n, dtype):
    # Of numbers of one sign, each rounding is at most half an epsilon of the result.
    blocks = np.abs(draw(n, (500,), dtype))
    exact = blocks.astype(np.float64).sum(0)
    out = by_vmap(algorithm.all_reduce, blocks)[0].astype(np.float64)
    unit = float(jnp.finfo(dtype).eps) / 2
    worst = np.max(np.abs(out - exact) / exact) / unit
    assert 0 < worst <= 1.01 * algorithm.roundings(n)


@pytest.mark.few(6)
@every
@pytest.mark.parametrize("n", [3, 4])
def test_nonfinite_values_reach_every_worker(algorithm, n):
    blocks = draw(n, (8,), np.float32)
    blocks[n - 1, 5] = np.nan
    blocks[1, 0] = np.inf
    out = by_mesh(algorithm.all_reduce, blocks)
    assert np.isnan(out[:, 5]).all()
    assert np.isinf(out[:, 0]).all()
    assert np.isfinite(out[:, [1, 2, 3, 4, 6, 7]]).all()


@pytest.mark.few(2)
@every
def test_two_axes_one_after_the_other(algorithm):
    blocks = draw(6, (11,), jnp.bfloat16).reshape(2, 3, 11)
    inside = [algorithm.reference(list(host)) for host in blocks]
    mapped = jax.vmap(
        lambda x: algorithm.all_reduce(x, ("host", "device")), axis_name="device"
    )
    out = np.asarray(jax.vmap(mapped, axis_name="host")(blocks))
    assert_same(out.reshape(6, 11), algorithm.reference(inside))


@pytest.mark.few(3)
@every
def test_inside_a_jit_inside_a_vmap(algorithm):
    blocks = draw(5, (11,), np.float32)
    inner = jax.jit(lambda x: algorithm.all_reduce(x, "data"))
    out = np.asarray(jax.vmap(inner, axis_name="data")(blocks))
    assert_same(out, algorithm.reference(list(blocks)))


@every
def test_of_a_constant_that_vmap_does_not_batch(algorithm):
    """Like the gradient of a parameter that is not used."""
    x = jnp.arange(6.0)
    mapped = jax.vmap(
        lambda seed: algorithm.all_reduce(x, "data") + 0 * seed, axis_name="data"
    )
    np.testing.assert_allclose(jax.jit(mapped)(jnp.zeros(3)), np.stack([3 * x] * 3))


@every
def test_vmap_inside_a_mesh(algorithm):
    # The axis of vmap takes full permutations, though there are devices around it.
    blocks = draw(6, (7,), np.float32).reshape(2, 3, 7)
    mapped = jax.jit(
        jax.shard_map(
            jax.vmap(lambda x: algorithm.all_reduce(x, "inner"), axis_name="inner"),
            mesh=mesh_of(2),
            in_specs=jax.P("data"),
            out_specs=jax.P("data"),
            check_vma=False,
        )
    )
    out = np.asarray(mapped(blocks.reshape(6, 7))).reshape(2, 3, 7)
    for device in range(2):
        assert_same(out[device], algorithm.reference(list(blocks[device])))


@pytest.mark.few(2)
@every
@pytest.mark.parametrize(
    ("size", "dtype"),
    [(0, "float32"), (1, "int32"), (7, "float8_e5m2"), (96, "bfloat16")],
)
def test_traced_bytes_equal_the_formula(algorithm, size, dtype):
    x = jax.ShapeDtypeStruct((size,), dtype)
    tx = as_transformation(algorithm.all_reduce, "data")
    for n in range(1, 17):
        assert wire_bytes(tx, x, emulate(n)) == algorithm.wire_bytes(x, n), n


@pytest.mark.few(5)
@every
@pytest.mark.parametrize(
    ("n", "dtype"), [(2, "float32"), (5, "bfloat16"), (7, "int32"), (8, "float32")]
)
def test_compiled_bytes_equal_the_formula(algorithm, n, dtype):
    x = jax.ShapeDtypeStruct((19,), dtype)
    step = mapped_on_mesh(algorithm.all_reduce, n)
    blocks = jax.ShapeDtypeStruct((n, 19), dtype)
    assert compiled_wire_bytes(step, blocks) == algorithm.wire_bytes(x, n)


# Sends and bytes of the busiest worker for 8 and for 5 workers and 80 float32, by hand.
BY_HAND = {
    "ring": (2 * 7 * 10 * 4, 2 * 4 * 16 * 4),
    "bidirectional_ring": (2 * 7 * (5 + 5) * 4, 2 * 4 * (8 + 8) * 4),
    "halving_doubling": (2 * (40 + 20 + 10) * 4, (2 * (40 + 20) + 80) * 4),
    "tree": (3 * 80 * 4, 3 * 80 * 4),
    "two_shot": (2 * 7 * 10 * 4, 2 * 4 * 16 * 4),
    "one_shot": (7 * 80 * 4, 4 * 80 * 4),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_bytes_by_hand(name):
    x = jax.ShapeDtypeStruct((80,), jnp.float32)
    stated = tuple(ALGORITHMS[name].wire_bytes(x, n) for n in (8, 5))
    assert stated == BY_HAND[name]


# The same under check_vma=True, where the last step may be another one.
BY_HAND_TYPED = BY_HAND | {
    "halving_doubling": ((40 + 20 + 10 + 7 * 10) * 4, (80 + 4 * 20) * 4),
    "tree": ((80 + 2 * 7 * 10) * 4, (80 + 2 * 4 * 16) * 4),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_bytes_by_hand_where_types_are_checked(name):
    compiled = tuple(
        compiled_wire_bytes(
            typed_on_mesh(ALGORITHMS[name].all_reduce, n),
            jax.ShapeDtypeStruct((n, 80), jnp.float32),
        )
        for n in (8, 5)
    )
    assert compiled == BY_HAND_TYPED[name]


@every
def test_sixteen_bits_travel_as_sixteen_bits(algorithm):
    blocks = draw(3, (64,), jnp.bfloat16)
    hlo = optimized_hlo(lower_on_mesh(algorithm.all_reduce, blocks))
    kinds = ("collective-permute(", "all-to-all(", "all-gather(", "all-reduce(")
    sent = [line for line in hlo.splitlines() if any(f" {k}" in line for k in kinds)]
    assert sent
    assert all(" u16[" in line or " (u16[" in line for line in sent)


@pytest.mark.parametrize(
    ("name", "messages"),
    [("tree", [1, 1, 1, 1, 2, 2]), ("halving_doubling", [1, 1, 4, 4, 4, 4])],
)
def test_nobody_else_sends_on_devices(name, messages):
    # A permutation completed for vmap would send five messages each time.
    blocks = draw(5, (8,), np.float32)
    text = lower_on_mesh(ALGORITHMS[name].all_reduce, blocks).as_text()
    pairs = [
        int(line.split("source_target_pairs")[1].split("tensor<")[1].split("x")[0])
        for line in text.splitlines()
        if "collective_permute" in line
    ]
    assert sorted(pairs) == messages


@every
def test_outside_an_axis(algorithm):
    with pytest.raises(NameError, match=r"_all_reduce: no axis named 'data'.*init"):
        algorithm.all_reduce(jnp.ones(3), "data")

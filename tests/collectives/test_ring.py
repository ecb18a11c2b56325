"""The ring against the sum of a list of blocks, that a person can check by eye."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import PartitionSpec as P

from relaxjax.collectives import ring_all_reduce, ring_wire_bytes
from relaxjax.collectives.exact._ring import one_ring
from relaxjax.programs import shape_of
from tests.helpers import mesh_of, optimized_hlo


def ring_ref(blocks: list[np.ndarray]) -> list[np.ndarray]:
    """What every worker receives: the sum, added around the ring in its own order.

    Chunk c starts at worker c + 1 and is added by workers c + 2, ..., c; each addition
    is in float32 or wider, and rounded to the dtype that travels.
    """
    n, dtype, shape = len(blocks), blocks[0].dtype, blocks[0].shape
    wide = np.promote_types(dtype, np.float32) if dtype.itemsize < 4 else dtype
    flat = [np.resize(np.append(b.ravel(), 0 * b.ravel()[:0]), b.size) for b in blocks]
    size = flat[0].size
    chunk = -(-size // n)
    total = np.zeros(size, dtype)
    for c in range(n):
        where = slice(c * chunk, min((c + 1) * chunk, size))
        partial = flat[(c + 1) % n][where]
        for s in range(2, n + 1):
            partial = (
                partial.astype(wide) + flat[(c + s) % n][where].astype(wide)
            ).astype(dtype)
        total[where] = partial
    return [total.reshape(shape)] * n


def run_mesh(blocks: np.ndarray, check_vma: bool = False) -> np.ndarray:
    n = blocks.shape[0]
    spec = P() if check_vma else P("data")
    f = jax.shard_map(
        lambda x: (
            ring_all_reduce(x[0], "data")[None]
            if not check_vma
            else ring_all_reduce(x[0], "data")
        ),
        mesh=mesh_of(n),
        in_specs=P("data"),
        out_specs=spec,
        check_vma=check_vma,
    )
    return np.asarray(jax.jit(f)(blocks))


def run_vmap(blocks: np.ndarray) -> np.ndarray:
    f = jax.vmap(lambda x: ring_all_reduce(x, "data"), axis_name="data")
    return np.asarray(jax.jit(f)(blocks))


def draw(n: int, shape: tuple[int, ...], dtype, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, *shape)).astype(dtype)


@pytest.mark.few(2)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 16])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5), (2, 0, 4)])
def test_equals_the_sum_of_blocks_bitwise(n, shape):
    blocks = draw(n, shape, np.float32)
    expected = np.stack(ring_ref(list(blocks)))
    np.testing.assert_array_equal(run_mesh(blocks), expected)
    np.testing.assert_array_equal(run_vmap(blocks), expected)


@pytest.mark.few(2)
@pytest.mark.parametrize("n", range(1, 17))
def test_every_worker_count(n):
    blocks = draw(n, (19,), np.float32)
    np.testing.assert_array_equal(run_vmap(blocks), np.stack(ring_ref(list(blocks))))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "dtype", [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.float8_e5m2]
)
def test_narrow_floats_are_added_in_float32(dtype):
    blocks = draw(5, (33,), dtype)
    expected = np.stack(ring_ref(list(blocks))).astype(np.float32)
    np.testing.assert_array_equal(run_mesh(blocks).astype(np.float32), expected)
    np.testing.assert_array_equal(run_vmap(blocks).astype(np.float32), expected)


@pytest.mark.parametrize("dtype", [np.complex64, np.int32, np.uint8])
def test_other_numbers(dtype):
    blocks = (10 * draw(4, (9,), np.float32)).astype(dtype)
    np.testing.assert_array_equal(run_mesh(blocks), np.stack(ring_ref(list(blocks))))


@pytest.mark.parametrize("step", [1, -1])
def test_what_is_brought_together_is_counted(step):
    """A running mean needs to know of how many workers it is so far."""
    x = np.arange(20.0, dtype=np.float32).reshape(4, 5) ** 2

    def mean(so_far, count, x):
        return (so_far * count + x) / (count + 1)

    run = jax.vmap(lambda x: one_ring(x, "data", step, mean), axis_name="data")
    np.testing.assert_allclose(run(x), np.tile(x.mean(0), (4, 1)), rtol=1e-6)


def test_half_of_a_single_element_is_not_sent():
    """As in a bidirectional ring."""
    half = jax.vmap(lambda x: one_ring(x, "data"), axis_name="data")(jnp.zeros((3, 0)))
    assert (half.shape, half.dtype) == ((3, 0), np.float32)


def test_float64():
    with jax.enable_x64(True):
        blocks = draw(3, (10,), np.float64)
        np.testing.assert_array_equal(
            run_mesh(blocks), np.stack(ring_ref(list(blocks)))
        )


@pytest.mark.parametrize("n", [1, 4])
def test_result_is_known_to_be_equal_under_check_vma(n):
    # out_specs=P() is refused unless the type says that all workers hold the same.
    blocks = draw(n, (6,), np.float32)
    expected = ring_ref(list(blocks))[0]
    np.testing.assert_array_equal(run_mesh(blocks, check_vma=True), expected)


def test_two_axes_one_after_the_other():
    blocks = draw(6, (11,), np.float32).reshape(2, 3, 11)
    inner = [ring_ref(list(host))[0] for host in blocks]
    expected = ring_ref(inner)[0]
    f = jax.vmap(
        jax.vmap(lambda x: ring_all_reduce(x, ("host", "device")), axis_name="device"),
        axis_name="host",
    )
    np.testing.assert_array_equal(f(blocks)[1, 2], expected)


def test_nonfinite_values_reach_every_worker():
    blocks = draw(4, (8,), np.float32)
    blocks[2, 5] = np.nan
    blocks[1, 0] = np.inf
    out = run_mesh(blocks)
    assert np.isnan(out[:, 5]).all()
    assert np.isinf(out[:, 0]).all()
    assert np.isfinite(out[:, 1:5]).all()


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    n=st.integers(1, 8),
    shape=st.lists(st.integers(0, 6), max_size=3).map(tuple),
    dtype=st.sampled_from([np.float32, jnp.bfloat16, np.float16, np.int32]),
    seed=st.integers(0, 2**16),
)
def test_any_shape_dtype_and_worker_count(n, shape, dtype, seed):
    blocks = (4 * draw(n, shape, np.float32, seed)).astype(dtype)
    expected = np.stack(ring_ref(list(blocks)))
    np.testing.assert_array_equal(
        run_vmap(blocks).astype(np.float32), expected.astype(np.float32)
    )


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize(("size", "dtype"), [(7, "float32"), (120, "bfloat16")])
def test_stated_bytes(n, size, dtype):
    # The permutes of the traced program, one by one.
    x = jax.ShapeDtypeStruct((size,), dtype)
    jaxpr = jax.make_jaxpr(
        lambda x: ring_all_reduce(x, "data"), axis_env=[("data", n)]
    )(x)
    hops = [eqn for eqn in jaxpr.eqns if eqn.primitive.name == "ppermute"]
    shapes = [shape_of(hop.invars[0]) for hop in hops]
    sent = sum(shape.size * shape.dtype.itemsize for shape in shapes)
    assert len(hops) == 2 * (n - 1)
    assert sent == ring_wire_bytes(x, n)


def test_sixteen_bits_travel_as_sixteen_bits():
    f = jax.jit(
        jax.shard_map(
            lambda x: ring_all_reduce(x[0], "data")[None],
            mesh=mesh_of(4),
            in_specs=P("data"),
            out_specs=P("data"),
            check_vma=False,
        )
    )
    hlo = optimized_hlo(f.lower(draw(4, (64,), jnp.bfloat16)))
    permutes = [line for line in hlo.splitlines() if " collective-permute(" in line]
    assert len(permutes) == 6
    assert all(" u16[16]" in line for line in permutes)


def test_outside_an_axis():
    with pytest.raises(NameError, match=r"ring_all_reduce: no axis named 'data'.*init"):
        ring_all_reduce(jnp.ones(3), "data")

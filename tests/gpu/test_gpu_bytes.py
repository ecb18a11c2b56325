"""What NCCL would receive: dtypes, bytes, groups and their order."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.programs.gpu_program import gpu_mesh
from relaxjax import all_reduce, compiled_wire_bytes, wire_bytes
from relaxjax.programs import bytes_sent
from tests.gpu.programs import collectives, update_text

FLOATS = {
    "float32": "f32",
    "bfloat16": "bf16",
    "float16": "f16",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e5m2": "f8e5m2",
    "complex64": "c64",
}
# Sizes that eight divides: XLA lays the leaves of a group end to end, and the padding
# that each would have by itself is then left out (see the test of odd sizes).
SIZES = {"a": (64, 24), "b": (40,), "c": (16, 8)}


def tree(dtype: Any, sizes: Any = SIZES) -> Any:
    return {k: jax.ShapeDtypeStruct(v, jnp.dtype(dtype)) for k, v in sizes.items()}


def own(update) -> Any:
    """A transformation without state."""

    def update_fn(updates, state, params=None):
        del params
        return update(updates), state

    return optax.GradientTransformation(lambda params: (), update_fn)


OTHERS = ["bidirectional_ring", "halving_doubling", "tree", "two_shot", "one_shot"]
TABLE = [(a, d) for a in ("psum", "ring") for d in FLOATS]
TABLE += [(a, d) for a in OTHERS for d in ("float32", "bfloat16")]


@pytest.mark.few(12)
@pytest.mark.parametrize(("algorithm", "dtype"), TABLE)
def test_bytes_are_those_traced(mesh, algorithm, dtype):
    tx: Any = all_reduce("data", algorithm=algorithm, bucket_bytes=500)
    text = update_text(tx, tree(dtype), mesh)
    assert int(bytes_sent(text).max()) == wire_bytes(tx, tree(dtype), mesh) > 0


BITS = {"float16": "u16", "float8_e4m3fn": "u8", "float8_e5m2": "u8"}


@pytest.mark.parametrize("dtype", FLOATS)
def test_psum_sends_the_dtype_itself(mesh, dtype):
    """Or its bits, where the sum might leave its range; these are added in float32."""
    text = update_text(all_reduce("data"), tree(dtype), mesh)
    kinds = {(kind, shape.split("[")[0]) for kind, shape in collectives(text)}
    if dtype in BITS:
        assert {kind for kind, _ in kinds} == {"all-to-all", "all-gather"}
        assert ("all-to-all", BITS[dtype]) in kinds
    else:
        assert kinds == {("all-reduce", FLOATS[dtype])}


@pytest.mark.parametrize(
    ("dtype", "wire"),
    [
        ("float32", "f32"),
        ("bfloat16", "u16"),
        ("float16", "u16"),
        ("float8_e5m2", "u8"),
    ],
)
def test_the_ring_sends_narrow_floats_as_bits(mesh, dtype, wire):
    tx: Any = all_reduce("data", algorithm="ring")
    sent = collectives(update_text(tx, tree(dtype), mesh))
    chunk = (64 * 24 + 40 + 16 * 8) // 8
    assert sent == [("collective-permute", f"{wire}[{chunk}]")] * 14


def test_odd_sizes_lose_their_padding(mesh):
    odd = tree("float32", {"a": (1001,), "b": (3,), "c": (5,)})
    tx: Any = all_reduce("data")
    compiled = int(bytes_sent(update_text(tx, odd, mesh)).max())
    assert wire_bytes(tx, odd, mesh) == compiled
    assert compiled == 2 * 7 * 127 * 4  # 1009 elements together


# What is summed, and what it is summed as.
PROMOTED = {
    "int8": "s8",
    "uint8": "u8",
    "int16": "s32",
    "uint16": "u32",
    "int32": "s32",
}


@pytest.mark.parametrize("dtype", PROMOTED)
def test_sums_of_integers(mesh, dtype):
    total = own(lambda u: jax.tree.map(lambda x: lax.psum(x, "data"), u))
    one = tree(dtype, {"a": (1024,)})
    text = update_text(total, one, mesh)
    assert collectives(text) == [("all-reduce", f"{PROMOTED[dtype]}[1024]")]
    widened = 2 if dtype in ("int16", "uint16") else 1
    assert int(bytes_sent(text).max()) == widened * wire_bytes(total, one, mesh)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "bfloat16", "float8_e4m3fn"])
def test_what_moves_keeps_its_width(mesh, dtype):
    def moves(u):
        right = [(i, (i + 1) % 8) for i in range(8)]
        return {
            "permute": lax.ppermute(u["a"], "data", right),
            "gather": lax.all_gather(u["a"], "data"),
            "to all": lax.all_to_all(u["a"], "data", 0, 0, tiled=True),
            "broadcast": lax.pbroadcast(u["a"], ("data",), 3),
        }

    one = tree(dtype, {"a": (1024,)})
    text = update_text(own(moves), one, mesh)
    assert int(bytes_sent(text).max()) == wire_bytes(own(moves), one, mesh)
    assert len(collectives(text)) == 4


def test_four_bits_are_packed_before_they_are_gathered(mesh):
    gather = own(lambda u: {"a": lax.all_gather(u["a"], "data")})
    text = update_text(gather, tree("int4", {"a": (1024,)}), mesh)
    assert int(bytes_sent(text).max()) == 7 * 512


@pytest.mark.parametrize("algorithm", ["psum", "ring"])
def test_buckets_stay_apart_and_in_order(mesh, algorithm):
    sizes = {"a": (800,), "b": (1600,), "c": (2400,), "d": (3200,)}
    order = ["c", "a", "d", "b"]
    tx: Any = all_reduce("data", algorithm=algorithm, bucket_bytes=1, order=order)
    if algorithm == "ring":
        tx = all_reduce("data", algorithm="ring", bucket_bytes=12800, order=order)
    sent = collectives(update_text(tx, tree("float32", sizes), mesh))
    if algorithm == "psum":
        assert [shape for _, shape in sent] == [f"f32[{sizes[k][0]}]" for k in order]
    else:  # c and a fill a bucket of 3200 elements together
        chunks = [3200 // 8, 3200 // 8, 1600 // 8]
        assert [shape for _, shape in sent] == [
            f"f32[{chunk}]" for chunk in chunks for _ in range(14)
        ]


@pytest.mark.usefixtures("mesh")  # skipped as they are
def test_two_axes_group_by_host():
    mesh = gpu_mesh((2, 4), ("host", "device"), hosts=2)
    tx: Any = all_reduce(("host", "device"), algorithm="ring")
    text = update_text(tx, tree("bfloat16"), mesh)
    assert int(bytes_sent(text).max()) == wire_bytes(tx, tree("bfloat16"), mesh)


def test_a_loop_and_a_conditional(mesh):
    def update(u):
        looped = lax.fori_loop(
            0, 5, lambda _, c: lax.ppermute(c, "data", [(0, 1), (1, 0)]) + 1, u["a"]
        )
        return {
            "a": looped,
            "b": lax.cond(
                lax.psum(u["b"][0], "data") > 0,
                lambda b: lax.psum(b * 3, "data"),
                lambda b: b,
                u["b"],
            ),
        }

    one = tree("float32")
    text = update_text(own(update), one, mesh)
    assert int(bytes_sent(text).max()) == wire_bytes(own(update), one, mesh)


def test_compiled_wire_bytes_of_a_gpu_program(mesh):
    split, whole = (NamedSharding(mesh, spec) for spec in (P("data"), P()))
    x = jax.ShapeDtypeStruct((8, 1024), np.float32, sharding=split)
    total = jax.jit(lambda x: x.sum(0), out_shardings=whole)
    assert compiled_wire_bytes(total, x) == 2 * 7 * 128 * 4

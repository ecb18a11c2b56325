"""What a TPU program sends: bytes, dtypes and groups."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchmarks.programs.tpu_program import tpu_mesh
from relaxjax import all_reduce, wire_bytes
from relaxjax.gradients.mean._exact_mean import ALGORITHMS
from relaxjax.programs import bytes_sent
from tests.gpu.programs import collectives, update_text

SIZES = {"a": (64, 24), "b": (40,), "c": (16, 8)}
ONE_AXIS = ("psum", *(name for name in ALGORITHMS if name != "hierarchical"))


def tree(dtype: str) -> Any:
    return {k: jax.ShapeDtypeStruct(v, jnp.dtype(dtype)) for k, v in SIZES.items()}


@pytest.mark.few(6)
@pytest.mark.parametrize("algorithm", [name for name in ONE_AXIS if name != "one_shot"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bytes_are_those_traced(mesh, algorithm, dtype):
    tx: Any = all_reduce("data", algorithm=algorithm, bucket_bytes=500)
    text = update_text(tx, tree(dtype), mesh)
    assert int(bytes_sent(text).max()) == wire_bytes(tx, tree(dtype), mesh) > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bytes_of_one_shot_on_one_leaf(mesh, dtype):
    """Of a gather of packed leaves XLA makes an all-reduce, which sends twice that."""
    tx: Any = all_reduce("data", algorithm="one_shot")
    one = {"a": jax.ShapeDtypeStruct((1704,), jnp.dtype(dtype))}
    text = update_text(tx, one, mesh)
    assert int(bytes_sent(text).max()) == wire_bytes(tx, one, mesh) > 0


@pytest.mark.usefixtures("mesh")  # skipped as they are
def test_hierarchical_over_two_axes():
    mesh = tpu_mesh((2, 4), ("host", "chip"))
    tx: Any = all_reduce(("host", "chip"), algorithm="hierarchical")
    text = update_text(tx, tree("float32"), mesh)
    assert int(bytes_sent(text).max()) == wire_bytes(tx, tree("float32"), mesh)


@pytest.mark.usefixtures("mesh")
def test_between_slices_xla_sends_in_a_way_that_is_not_counted():
    mesh = tpu_mesh((2, 8), ("slice", "chip"), slices=2)
    tx: Any = all_reduce(("slice", "chip"), algorithm="hierarchical")
    with pytest.raises(ValueError, match=r"bytes of 'send'.*are not counted"):
        bytes_sent(update_text(tx, tree("float32"), mesh))


@pytest.mark.usefixtures("mesh")
def test_a_mesh_has_the_devices_of_its_slices():
    with pytest.raises(ValueError, match=r"\(4,\) has 4 devices.*'v5e:2x4' have 8"):
        tpu_mesh((4,))


def test_the_ring_sends_16_bits(mesh):
    tx: Any = all_reduce("data", algorithm="ring")
    sent = collectives(update_text(tx, tree("bfloat16"), mesh))
    chunk = (64 * 24 + 40 + 16 * 8) // 8
    assert sent == [("collective-permute", f"u16[{chunk}]")] * 14

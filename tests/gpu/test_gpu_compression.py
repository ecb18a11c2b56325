"""Compressed programs for GPUs: what NCCL receives, and whether a loss stays a loss.

On a GPU XLA may keep excess precision: x - float32(bfloat16(x)) becomes x - x there,
and error feedback would die unseen on a CPU.
"""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from benchmarks.programs.ahead_of_time import compiled_text
from relaxjax import all_reduce, wire_bytes
from relaxjax.compression._rows import COMPRESSORS, FEEDBACKS
from relaxjax.programs import bytes_sent, parse
from tests.gpu.programs import collectives

SHAPE = (64, 24)
NO_CONTRACTION = {"drive"}
LOSSY = [name for name in COMPRESSORS if name not in {"identity", *NO_CONTRACTION}]
WIRE = {"identity": "f32", "bf16": "u16", "fp16": "u16", "random_k": "f32"}
WIRE["random_block"] = "f32"


def text_of(update: Any, mesh: jax.sharding.Mesh) -> str:
    """The program of an update of one leaf; it returns all that comes out."""

    def local(g):
        return jax.tree.map(lambda x: x[None], update(g[0]))

    spec = P(mesh.axis_names)
    mapped = jax.shard_map(
        local, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
    )
    where = jax.sharding.NamedSharding(mesh, spec)
    x = jax.ShapeDtypeStruct((mesh.size, *SHAPE), jnp.float32, sharding=where)
    return compiled_text(jax.jit(mapped), x)


def collapsed(text: str) -> bool:
    """Whether the difference of a value and itself is left of a loss."""
    return any(
        i.opcode == "subtract" and i.operands[0] == i.operands[1]
        for body in parse(text).computations.values()
        for i in body
    )


def compressed(compressor: str, feedback: str | None, algorithm: str) -> Any:
    made = COMPRESSORS[compressor]()
    if feedback:
        made = FEEDBACKS[feedback](made)
    tx: Any = all_reduce("data", algorithm=algorithm, compressor=made)

    def update(g):
        out, state = tx.update(g, tx.init(g))
        return out, state.compressed.feedback

    return tx, update


def test_the_check_sees_a_residual_that_died(mesh):
    def naive(g):
        return g - g.astype(jnp.bfloat16).astype(jnp.float32)

    def honest(g):
        return g - jax.lax.reduce_precision(g, 8, 7)

    assert collapsed(text_of(naive, mesh))
    assert not collapsed(text_of(honest, mesh))


# One of each kind; the others are slow.
QUICK = ("bf16", "fp16", "fp8", "quantize8", "sign", "top_k", "random_k")


def slow_but(quick: bool) -> list[pytest.MarkDecorator]:
    return [] if quick else [pytest.mark.slow]


ROWS = [(name, "ef14", "two_shot") for name in LOSSY]
ROWS += [
    (name, "ef14", how) for name in ("bf16", "sign") for how in ("one_shot", "ring")
]
ROWS += [("random_k", "ef14", "psum")]
ROWS += [
    (name, feedback, "two_shot")
    for name in ("bf16", "fp8", "quantize8")
    for feedback in FEEDBACKS
    if feedback != "ef14"
]


@pytest.mark.parametrize(
    ("compressor", "feedback", "algorithm"),
    [pytest.param(*row, marks=slow_but(row[0] in QUICK)) for row in ROWS],
)
def test_no_residual_dies(mesh, compressor, feedback, algorithm):
    _, update = compressed(compressor, feedback, algorithm)
    assert not collapsed(text_of(update, mesh))


@pytest.mark.parametrize(
    "compressor",
    [pytest.param(name, marks=slow_but(name in QUICK)) for name in COMPRESSORS],
)
def test_nccl_receives_packed_payloads_of_the_bytes_traced(mesh, compressor):
    tx, update = compressed(compressor, None, "two_shot")
    text = text_of(update, mesh)
    x = jax.ShapeDtypeStruct(SHAPE, jnp.float32)
    assert int(bytes_sent(text).max()) == wire_bytes(tx, x, mesh) > 0
    sent = collectives(text)
    assert {kind for kind, _ in sent} == {"all-to-all", "all-gather"}
    assert {s.split("[")[0] for _, s in sent} == {WIRE.get(compressor, "u8")}

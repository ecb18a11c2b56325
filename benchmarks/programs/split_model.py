"""Legs inside a split model on eight H100s: their bytes, and what they hold up.

    tensor    two perceptrons, each cut over all devices between f and g
    expert    a perceptron on each device, tokens sent there and back

Loss and gradient of the weights, activations in bfloat16, with and without codes.
Nothing is run: each program is compiled for GPUs that are not there, and its schedule
replayed with stated rates. Without codes a sum is the compiler's own all-reduce.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from benchmarks.programs.ahead_of_time import (
    Microseconds,
    Tflops,
    compiled_text,
    rates,
)
from benchmarks.programs.by_bandwidth import columns_of, row_of
from benchmarks.programs.gpu_program import gpu_mesh
from benchmarks.report import Result, Run, Table, benchmark
from relaxjax import activations, compression
from relaxjax.schedule import Device, Link

DEVICES, WIDTH, TOKENS = 8, 4096, 8192  # tokens of a device
BANDWIDTHS = (12.5e9, 50e9, 450e9)  # bytes per second; the last is NVLink's
E4M3, E5M2, E2M1 = (compression.mx(x) for x in ("e4m3", "e5m2", "e2m1"))
CODES: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "8 bits forward": {"forward": E4M3},
    "8 bits both ways": {"forward": E4M3, "backward": E5M2},
    "4 bits both ways": {"forward": E2M1, "backward": E2M1},
}


def _perceptron(weights: Any, x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x @ weights["widen"]) @ weights["narrow"]


def tensor(weights: Any, x: jax.Array, codes: Any) -> jax.Array:
    """Two perceptrons, a part of each here; weights[..] has a leading axis of two."""
    for i in range(2):
        here = activations.copy(x, "data", **codes)
        part = _perceptron(jax.tree.map(lambda w, i=i: w[i], weights), here)
        x = x + activations.all_reduce(part, "data", **codes)
    return x


def expert(weights: Any, x: jax.Array, codes: Any) -> jax.Array:
    """Tokens that go to all experts alike, and back."""
    swap = partial(
        activations.all_to_all, axis_name="data", split_axis=0, concat_axis=0, **codes
    )
    here = swap(x.reshape(DEVICES, -1, WIDTH))
    own = jax.tree.map(lambda w: w[0], weights)
    return x + swap(_perceptron(own, here)).reshape(x.shape)


LAYERS = {"tensor": (tensor, WIDTH // 2, 2), "expert": (expert, 2 * WIDTH, 1)}
"""The layer, the hidden width on a device, and how many perceptrons there are."""
CALLS = {"tensor": (("copy", 2), ("all_reduce", 2)), "expert": (("all_to_all", 2),)}


def stated(layer: str, codes: Mapping[str, Any]) -> activations.SentBytes:
    """What the closed forms say that the layer sends."""
    shape = (
        (TOKENS, WIDTH) if layer == "tensor" else (DEVICES, TOKENS // DEVICES, WIDTH)
    )
    x = jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    each = [
        (times, activations.sent_bytes(collective, x, DEVICES, **codes))
        for collective, times in CALLS[layer]
    ]
    forward, backward = (sum(t * sent[way] for t, sent in each) for way in (0, 1))
    return activations.SentBytes(forward, backward)


def text_of(layer: str, codes: Mapping[str, Any], mesh: Mesh) -> str:
    """The program of a layer's loss and gradients."""
    fn, hidden, count = LAYERS[layer]

    def loss(weights: Any, x: jax.Array) -> jax.Array:
        return jnp.mean(fn(weights, x, codes).astype(jnp.float32) ** 2)

    def step(weights: Any, x: jax.Array) -> Any:
        own = jax.tree.map(lambda w: w[0], weights)
        value, grads = jax.value_and_grad(loss, argnums=(0, 1))(own, x)
        return value[None], jax.tree.map(lambda g: g[None], grads)

    def weight(*shape: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((DEVICES, count, *shape), jnp.bfloat16)

    rows = P() if layer == "tensor" else P("data")
    mapped = jax.shard_map(
        step,
        mesh=mesh,
        in_specs=(P("data"), rows),
        out_specs=P("data"),
        check_vma=False,
    )
    whole = TOKENS if layer == "tensor" else DEVICES * TOKENS
    x = jax.ShapeDtypeStruct((whole, WIDTH), jnp.bfloat16)
    weights = {"widen": weight(WIDTH, hidden), "narrow": weight(hidden, WIDTH)}
    return compiled_text(jax.jit(mapped), weights, x)


# Without a driver, JAX's CUDA plugin can only compile.
@benchmark("split", platform="cpu")
def split(run: Run, tflops: Tflops = 400, microseconds: Microseconds = 10) -> Result:
    """Bytes and waits of legs inside a split model, in programs for eight H100s."""
    mesh = gpu_mesh((DEVICES,))
    device, link, known = rates(tflops, BANDWIDTHS[-1] / 1e9, microseconds)
    rows = [
        _row(layer, name, codes, mesh, device, link)
        for layer in LAYERS
        for name, codes in CODES.items()
    ]
    columns = columns_of(BANDWIDTHS)
    sizes = {"devices": DEVICES, "width": WIDTH, "tokens": TOKENS}
    return run.finish(
        {
            "conditions": run.conditions(**known, **sizes),
            "bandwidths": BANDWIDTHS,
            "rows": rows,
        },
        tables=[
            Table.of(
                "Legs of a split model",
                rows,
                *("layer", "codes", "transfers", "MB", "MB stated", "compute"),
                *columns,
            )
        ],
    )


def _row(
    layer: str,
    name: str,
    codes: Mapping[str, Any],
    mesh: Mesh,
    device: Device,
    link: Link,
) -> dict[str, Any]:
    """A row of JSON: seconds and exposed seconds by bandwidth."""
    row, nbytes = row_of(text_of(layer, codes, mesh), device, link, BANDWIDTHS)
    said = {"layer": layer, "codes": name, "MB": nbytes / 1e6}
    return {**said, "MB stated": stated(layer, codes).total / 1e6, **row}

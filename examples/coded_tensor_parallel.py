"""A transformer split over four devices: activations and their gradients in codes.

Each device holds a quarter of the heads and of the perceptron. Megatron's f stands in
front of them and g behind, with a code for each way; gradients are averaged over "data"
by the usual reducer. `python examples/coded_tensor_parallel.py 3` averages three seeds.
"""

import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import activations, compression
from relaxjax.tasks import chars

DATA, MODEL = 2, 4
WIDTH, HEADS, LAYERS, SYMBOLS, CONTEXT = 64, 4, 2, 128, 64
E4M3, E2M1 = compression.mx("e4m3"), compression.mx("e2m1")
CODES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "8 bits forward": {"forward": E4M3},
    "8 bits both ways": {"forward": E4M3, "backward": compression.mx("e5m2")},
    "4 bits forward": {"forward": E2M1},
    "4 bits both ways": {"forward": E2M1, "backward": E2M1},
}
# The dimension that is split over the devices; None: each has all of it.
LAYER = {
    "queries_keys_values": ((3, WIDTH, HEADS, WIDTH // HEADS), 2),
    "mix": ((HEADS, WIDTH // HEADS, WIDTH), 0),
    "widen": ((WIDTH, 4 * WIDTH), 1),
    "narrow": ((4 * WIDTH, WIDTH), 0),
}
WHOLE: Any = {
    "symbols": ((SYMBOLS, WIDTH), None),
    "positions": ((CONTEXT, WIDTH), None),
    "layers": [LAYER] * LAYERS,
    "output": ((WIDTH, SYMBOLS), None),
}


def parts(seed: int) -> Any:
    """The params of each device, [MODEL, ..]."""
    rng = np.random.default_rng(seed)

    def leaf(shape_and_dimension: Any) -> np.ndarray:
        shape, dimension = shape_and_dimension
        x = rng.normal(0, 0.05, shape).astype(np.float32)
        if dimension is None:
            return np.stack([x] * MODEL)
        return np.stack(np.split(x, MODEL, axis=dimension))

    return jax.tree.map(leaf, WHOLE, is_leaf=lambda node: isinstance(node, tuple))


def normalized(x: jax.Array) -> jax.Array:
    """Mean square 1 over the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def logits(params: Any, symbols: jax.Array, codes: Any) -> jax.Array:
    """Logits of the next symbol at each position, [rows, time, SYMBOLS]."""
    f = partial(activations.copy, axis_name="model", **codes)
    g = partial(activations.all_reduce, axis_name="model", **codes)
    x = params["symbols"][symbols] + params["positions"][: symbols.shape[1]]
    for layer in params["layers"]:
        here = f(normalized(x))
        q, k, v = jnp.einsum("rti,pihd->prthd", here, layer["queries_keys_values"])
        heads = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + g(jnp.einsum("rthd,hdo->rto", heads, layer["mix"]))
        here = f(normalized(x))
        x = x + g(jax.nn.gelu(here @ layer["widen"]) @ layer["narrow"])
    return normalized(x) @ params["output"]


def loss_fn(params: Any, batch: jax.Array, codes: Any) -> jax.Array:
    """Nats per character; a row of the batch is one character longer than CONTEXT."""
    symbols = batch.astype(jnp.int32)
    return optax.softmax_cross_entropy_with_integer_labels(
        logits(params, symbols[:, :-1], codes), symbols[:, 1:]
    ).mean()


def program(codes: Any, rate: float) -> tuple[Any, Any, Any]:
    """The optimizer's start, the step, and a measure without codes, on all devices."""
    devices = np.asarray(jax.devices()[: DATA * MODEL]).reshape(DATA, MODEL)
    mesh = jax.sharding.Mesh(devices, ("data", "model"))
    tx = optax.chain(relaxjax.all_reduce("data"), optax.adamw(rate))
    own, rows = P("model"), P("data")

    def of_worker(fn: Any) -> Any:  # a device's part of [MODEL, ..]
        return lambda state, *batch: jax.tree.map(
            lambda x: x[None], fn(jax.tree.map(lambda x: x[0], state), *batch)
        )

    def step(state: Any, batch: jax.Array) -> Any:
        params, opt_state = state
        loss, grads = jax.value_and_grad(loss_fn)(params, batch, codes)
        updates, opt_state = tx.update(grads, opt_state, params)
        loss = jax.lax.pmean(loss, "data")
        return (optax.apply_updates(params, updates), opt_state), loss

    def measure(state: Any, batch: jax.Array) -> Any:
        return jax.lax.pmean(loss_fn(state[0], batch, {}), "data")

    mapped = partial(jax.shard_map, mesh=mesh, check_vma=False, out_specs=own)
    start = of_worker(lambda params: (params, tx.init(params)))
    return (
        jax.jit(mapped(start, in_specs=(own,))),
        jax.jit(mapped(of_worker(step), in_specs=(own, rows))),
        jax.jit(mapped(of_worker(measure), in_specs=(own, rows))),
    )


def main(
    name: str, steps: int = 300, seed: int = 0, rate: float = 3e-3
) -> tuple[float, float, Any]:
    """Bits per character in the last 50 steps and held out, and bytes each way."""
    codes, task = CODES[name], chars(seed)
    batches = task.batches(seed, 32)
    start, step, measure = program(codes, rate)
    state, losses, batch = start(parts(seed)), [], next(batches)
    for _ in range(steps):
        state, loss = step(state, batch)
        losses.append(float(loss[0]))
        batch = next(batches)
    sent = activations.traced_bytes(
        partial(loss_fn, codes=codes),
        jax.tree.map(lambda x: x[0], parts(seed)),
        batch[: len(batch) // DATA],
        axes={"model": MODEL},
    )
    trained, held_out = np.mean(losses[-50:]), measure(state, task.held_out)[0]
    return float(trained / np.log(2)), float(held_out / np.log(2)), sent["model"]


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", DATA * MODEL)  # emulated
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    for name in CODES:
        runs = zip(*(main(name, seed=seed) for seed in seeds), strict=True)
        found, held_out, sent = runs
        print(
            f"{name}: {np.mean(found):.3f} bits a character, "
            f"{np.mean(held_out):.3f} held out, a device sends "
            f"{sent[0].forward:,} bytes forward and {sent[0].backward:,} backward"
        )

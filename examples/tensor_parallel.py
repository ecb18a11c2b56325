"""A transformer on two axes: four workers, each of them two devices.

The weights of attention and of the perceptron are sharded over "model", which is left
to the compiler. `specs=` says so to the reducer, which then sums over "data" only, on
each device's own shard, and gathers nothing; exactly, or in eight bits.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import compression
from relaxjax.tasks import chars

REDUCERS: Any = {
    "exact": {"algorithm": "ring"},
    "8 bits": {"algorithm": "two_shot", "compressor": compression.quantize(8)},
}
WIDTH, HEADS, LAYERS, SYMBOLS, CONTEXT = 64, 4, 2, 128, 64
LAYER: Any = {
    "queries_keys_values": ((3, WIDTH, HEADS, WIDTH // HEADS), P(None, None, "model")),
    "mix": ((HEADS, WIDTH // HEADS, WIDTH), P("model")),
    "widen": ((WIDTH, 4 * WIDTH), P(None, "model")),
    "narrow": ((4 * WIDTH, WIDTH), P("model")),
}
MODEL: Any = {
    "symbols": ((SYMBOLS, WIDTH), P()),
    "positions": ((CONTEXT, WIDTH), P()),
    "layers": [LAYER] * LAYERS,
    "output": ((WIDTH, SYMBOLS), P(None, "model")),
}


def of_model(make) -> Any:
    """A tree like the model's, of `make(shape, spec)`."""
    return jax.tree.map(lambda leaf: make(*leaf), MODEL, is_leaf=is_shape_and_spec)


def is_shape_and_spec(node: Any) -> bool:
    """Whether this is a leaf of MODEL."""
    return isinstance(node, tuple)


def normalized(x: jax.Array) -> jax.Array:
    """Mean square 1 over the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def logits(params: Any, symbols: jax.Array) -> jax.Array:
    """Logits of the next symbol at each position, [rows, time, SYMBOLS]."""
    x = params["symbols"][symbols] + params["positions"][: symbols.shape[1]]
    for layer in params["layers"]:
        q, k, v = jnp.einsum(
            "rti,pihd->prthd", normalized(x), layer["queries_keys_values"]
        )
        heads = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + jnp.einsum("rthd,hdo->rto", heads, layer["mix"])
        x = x + jax.nn.gelu(normalized(x) @ layer["widen"]) @ layer["narrow"]
    return normalized(x) @ params["output"]


def loss_fn(params: Any, batch: jax.Array) -> jax.Array:
    """Nats per character; a row of the batch is one character longer than CONTEXT."""
    symbols = batch.astype(jnp.int32)
    return optax.softmax_cross_entropy_with_integer_labels(
        logits(params, symbols[:, :-1]), symbols[:, 1:]
    ).mean()


def main(steps: int = 200, reducer: str = "exact") -> tuple[list[float], Any]:
    """Trains; returns the losses, and the compiled step with its arguments."""
    mesh = jax.make_mesh((4, 2), ("data", "model"))
    specs = of_model(lambda shape, spec: spec)
    rng = np.random.default_rng(0)
    params = of_model(
        lambda shape, spec: jax.device_put(
            rng.normal(0, 0.05, shape).astype(np.float32), NamedSharding(mesh, spec)
        )
    )
    tx = optax.chain(
        relaxjax.all_reduce("data", specs=specs, **REDUCERS[reducer]), optax.adamw(3e-3)
    )

    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    params, opt_state = relaxjax.init(tx, params, mesh, axis_name="data")
    step = relaxjax.data_parallel(train_step, mesh, axis_name="data")
    losses = []
    batches = chars(seed=0).batches(0, 32)
    batch = next(batches)
    for _ in range(steps):
        params, opt_state, metrics = step(params, opt_state, batch)
        losses.append(float(metrics["loss"]))
        batch = next(batches)
    shapes = of_model(lambda shape, _: jax.ShapeDtypeStruct(shape, np.float32))
    sent = relaxjax.wire_bytes(tx, shapes, mesh, axis_name="data")
    shown = f"loss {losses[0]:.3f} to {losses[-1]:.3f}"
    print(f"{reducer}: {shown}, spread {relaxjax.spread(params)}")
    print(f"each device sends {sent:,} bytes in a step")
    return losses, (step, params, opt_state, batch)


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 8)  # emulated, where there is no GPU
    for name in REDUCERS:
        main(reducer=name)

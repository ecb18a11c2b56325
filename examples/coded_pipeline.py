"""A pipeline of two stages: activations and their gradients cross between in codes.

Each stage has half of the layers, and a batch goes through in microbatches: while stage
1 has one, stage 0 has the next. With "differences" both stages remember what they last
knew of each row's activations, and the codes are of what has changed since (AQ-SGD,
Wang et al. 2022): this needs rows that come again, and memory for all of them.
`python examples/coded_pipeline.py 3` averages three seeds.
"""

import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

from relaxjax import activations, compression
from relaxjax.tasks import chars

STAGES, MICROBATCHES, ROWS, ALL_ROWS = 2, 4, 32, 256
WIDTH, HEADS, LAYERS, SYMBOLS, CONTEXT = 64, 4, 2, 128, 64
E4M3, E2M1 = compression.mx("e4m3"), compression.mx("e2m1")
INT8, INT4, INT2 = (compression.quantize(bits) for bits in (8, 4, 2))
CODES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "8 bits both ways": {"forward": E4M3, "backward": compression.mx("e5m2")},
    "4 bits both ways": {"forward": E2M1, "backward": E2M1},
    "2 bits forward": {"forward": INT2, "backward": INT8},
    "2 bits of differences": {"forward": INT2, "backward": INT8, "differences": True},
}
LAYER = {
    "queries_keys_values": (3, WIDTH, HEADS, WIDTH // HEADS),
    "mix": (HEADS, WIDTH // HEADS, WIDTH),
    "widen": (WIDTH, 4 * WIDTH),
    "narrow": (4 * WIDTH, WIDTH),
}
ENDS = {
    "symbols": (SYMBOLS, WIDTH),
    "positions": (CONTEXT, WIDTH),
    "output": (WIDTH, SYMBOLS),
}


def parts(seed: int) -> Any:
    """The params of each stage, [STAGES, ..]; each uses one end of the model."""
    rng = np.random.default_rng(seed)
    shapes = {"layers": [LAYER] * (LAYERS // STAGES), **ENDS}
    return jax.tree.map(
        lambda shape: rng.normal(0, 0.05, (STAGES, *shape)).astype(np.float32),
        shapes,
        is_leaf=lambda node: isinstance(node, tuple),
    )


def normalized(x: jax.Array) -> jax.Array:
    """Mean square 1 over the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def layers(params: Any, x: jax.Array) -> jax.Array:
    """This stage's layers."""
    for layer in params["layers"]:
        q, k, v = jnp.einsum(
            "rti,pihd->prthd", normalized(x), layer["queries_keys_values"]
        )
        heads = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + jnp.einsum("rthd,hdo->rto", heads, layer["mix"])
        x = x + jax.nn.gelu(normalized(x) @ layer["widen"]) @ layer["narrow"]
    return x


def crossed(
    x: jax.Array, known: jax.Array, *, differences: bool = False, **codes: Any
) -> tuple[jax.Array, jax.Array]:
    """What stage 1 gets of stage 0's x, and what both then know of these rows."""
    across = partial(activations.send, axis_name="stage", perm=[(0, 1)])
    if not differences:
        return across(x, **codes), known
    change = x - known
    arrived = known + across(change, **codes)
    told = jax.vmap(jax.vmap(partial(compression.roundtrip, codes["forward"])))
    first = lax.axis_index("stage") == 0
    return arrived, lax.stop_gradient(jnp.where(first, known + told(change), arrived))


def loss_fn(params: Any, batch: jax.Array, known: jax.Array, codes: Any) -> Any:
    """Nats per character where they are known, at stage 1, and what is then known.

    Of microbatches [M, rows, CONTEXT + 1], and of what both stages know of them,
    [M, rows, CONTEXT, WIDTH].
    """
    symbols = batch.astype(jnp.int32)
    first = lax.axis_index("stage") == 0

    def tick(arrived: jax.Array, turn: Any) -> Any:
        entering, leaving, known = turn
        x = params["symbols"][entering[:, :-1]] + params["positions"]
        x = layers(params, jnp.where(first, x, arrived))
        nats = optax.softmax_cross_entropy_with_integer_labels(
            normalized(x) @ params["output"], leaving[:, 1:]
        ).mean()
        arrived, told = crossed(x, known, **codes)
        return arrived, (nats, told)

    # A turn more than microbatches: the last one leaves stage 1 when none enters.
    enter = jnp.concatenate([symbols, symbols[:1]])
    leave = jnp.concatenate([symbols[:1], symbols])
    last = jnp.concatenate([known, known[:1]])
    nothing = jnp.zeros((*symbols.shape[1:2], CONTEXT, WIDTH))
    _, (nats, told) = lax.scan(tick, nothing, (enter, leave, last))
    return jnp.where(first, 0.0, nats[1:].mean()), told[:-1]


def program(codes: Any, rate: float) -> tuple[Any, Any, Any]:
    """The optimizer's start, the step, and a measure without codes, on both stages."""
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:STAGES]), ("stage",))
    tx = optax.adamw(rate)

    def of_stage(fn: Any) -> Any:
        return lambda state, *rest: jax.tree.map(
            lambda x: x[None], fn(jax.tree.map(lambda x: x[0], state), *rest)
        )

    def step(state: Any, batch: jax.Array, rows: jax.Array) -> Any:
        params, opt_state, known = state
        grad = jax.value_and_grad(loss_fn, has_aux=True)
        (nats, told), grads = grad(params, batch, known[rows], codes)
        updates, opt_state = tx.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return (params, opt_state, known.at[rows].set(told)), lax.psum(nats, "stage")

    def measure(state: Any, batch: jax.Array) -> Any:
        known = jnp.zeros((*batch.shape[:2], CONTEXT, WIDTH))
        return lax.psum(loss_fn(state[0], batch, known, {})[0], "stage")

    own = P("stage")
    mapped = partial(jax.shard_map, mesh=mesh, check_vma=False, out_specs=own)
    kept = ALL_ROWS if codes.get("differences") else 1

    def start(params: Any) -> Any:
        return params, tx.init(params), jnp.zeros((kept, CONTEXT, WIDTH))

    return (
        jax.jit(mapped(of_stage(start), in_specs=(own,))),
        jax.jit(mapped(of_stage(step), in_specs=(own, P(), P()))),
        jax.jit(mapped(of_stage(measure), in_specs=(own, P()))),
    )


def main(
    name: str, steps: int = 200, seed: int = 0, rate: float = 3e-3
) -> tuple[float, float, Any]:
    """Trains on rows that come again: bits per character, held out, bytes each way."""
    codes, task = CODES[name], chars(seed)
    text = next(task.batches(seed, ALL_ROWS))
    start, step, measure = program(codes, rate)
    state, losses, rng = start(parts(seed)), [], np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(ALL_ROWS) for _ in range(steps)])
    for chosen in order[: steps * ROWS].reshape(steps, MICROBATCHES, -1):
        rows = chosen if codes.get("differences") else np.zeros_like(chosen)
        state, nats = step(state, text[chosen], rows)
        losses.append(float(nats[0]))
    like = jax.ShapeDtypeStruct((ROWS // MICROBATCHES, CONTEXT, WIDTH), jnp.float32)
    forward, backward = codes.get("forward"), codes.get("backward")
    sent = activations.sent_bytes(
        "send", like, STAGES, forward=forward, backward=backward
    )
    test = task.held_out.reshape(MICROBATCHES, -1, CONTEXT + 1)
    trained, held_out = np.mean(losses[-50:]), measure(state, test)[0]
    return float(trained / np.log(2)), float(held_out / np.log(2)), sent


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", STAGES)  # emulated
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    for name in CODES:
        runs = zip(*(main(name, seed=seed) for seed in seeds), strict=True)
        found, held_out, sent = runs
        print(
            f"{name}: {np.mean(found):.3f} bits a character, "
            f"{np.mean(held_out):.3f} held out, a microbatch sends "
            f"{sent[0].forward:,} bytes forward and {sent[0].backward:,} backward"
        )

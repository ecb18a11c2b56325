"""A mixture of experts on four devices: tokens travel to their experts in codes.

Each device holds one expert of each layer, and all the rest of the model; its rows of
the batch are its own. A token goes to the expert that its router likes best, as long as
that one has room, and back. `python examples/mixture_of_experts.py 3` averages three
seeds.
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

EXPERTS, ROOM = 4, 1.25  # how much more than an even share an expert takes
WIDTH, HEADS, LAYERS, SYMBOLS, CONTEXT = 64, 4, 2, 128, 64
E4M3, E2M1 = compression.mx("e4m3"), compression.mx("e2m1")
CODES: dict[str, dict[str, Any]] = {
    "as it is": {},
    "8 bits forward": {"forward": E4M3},
    "8 bits both ways": {"forward": E4M3, "backward": compression.mx("e5m2")},
    "4 bits forward": {"forward": E2M1},
    "4 bits both ways": {"forward": E2M1, "backward": E2M1},
}
LAYER = {
    "queries_keys_values": (3, WIDTH, HEADS, WIDTH // HEADS),
    "mix": (HEADS, WIDTH // HEADS, WIDTH),
    "router": (WIDTH, EXPERTS),
}
EXPERT = {"widen": (WIDTH, 4 * WIDTH), "narrow": (4 * WIDTH, WIDTH)}
SHARED: Any = {
    "symbols": (SYMBOLS, WIDTH),
    "positions": (CONTEXT, WIDTH),
    "layers": [LAYER] * LAYERS,
    "output": (WIDTH, SYMBOLS),
}


def parts(seed: int) -> Any:
    """The params of each device, [EXPERTS, ..]: what all share, and its own experts."""
    rng = np.random.default_rng(seed)

    def drawn(shapes: Any, apart: bool) -> Any:
        def leaf(shape: tuple[int, ...]) -> np.ndarray:
            size = (EXPERTS if apart else 1, *shape)
            x = rng.normal(0, 0.05, size).astype(np.float32)
            return np.broadcast_to(x, (EXPERTS, *shape))

        return jax.tree.map(leaf, shapes, is_leaf=lambda node: isinstance(node, tuple))

    return {"shared": drawn(SHARED, False), "own": drawn([EXPERT] * LAYERS, True)}


def normalized(x: jax.Array) -> jax.Array:
    """Mean square 1 over the last axis."""
    return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def experts(
    x: jax.Array, router: jax.Array, expert: Any, codes: Any
) -> tuple[jax.Array, jax.Array]:
    """What each token's expert makes of it, and how uneven the choices are."""
    tokens = x.reshape(-1, WIDTH)
    room = int(ROOM * len(tokens) / EXPERTS)
    likes = jax.nn.softmax(tokens @ router)
    chosen = jax.nn.one_hot(jnp.argmax(likes, axis=-1), EXPERTS)
    place = jnp.cumsum(chosen, axis=0) * chosen - 1  # -1 where it is not the choice
    seats = jax.nn.one_hot(
        place.astype(int), room
    )  # and none where there is no room: [T, E, C]
    swap = partial(
        activations.all_to_all,
        axis_name="expert",
        split_axis=0,
        concat_axis=0,
        **codes,
    )
    there = swap(jnp.einsum("tec,th->ech", seats, tokens))
    back = swap(jax.nn.gelu(there @ expert["widen"]) @ expert["narrow"])
    out = jnp.einsum("tec,ech,te->th", seats, back, likes)
    uneven = EXPERTS * jnp.sum(chosen.mean(axis=0) * likes.mean(axis=0))
    return out.reshape(x.shape), uneven


def loss_fn(params: Any, batch: jax.Array, codes: Any) -> tuple[jax.Array, jax.Array]:
    """Nats per character and a hundredth of the unevenness; and the nats alone."""
    symbols, shared = batch.astype(jnp.int32), params["shared"]
    x = shared["symbols"][symbols[:, :-1]] + shared["positions"][: batch.shape[1] - 1]
    uneven = jnp.zeros(())
    for layer, expert in zip(shared["layers"], params["own"], strict=True):
        q, k, v = jnp.einsum(
            "rti,pihd->prthd", normalized(x), layer["queries_keys_values"]
        )
        heads = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + jnp.einsum("rthd,hdo->rto", heads, layer["mix"])
        more, by = experts(normalized(x), layer["router"], expert, codes)
        x, uneven = x + more, uneven + by
    nats = optax.softmax_cross_entropy_with_integer_labels(
        normalized(x) @ shared["output"], symbols[:, 1:]
    ).mean()
    return nats + 0.01 * uneven, nats


def program(codes: Any, rate: float) -> tuple[Any, Any, Any]:
    """The optimizer's start, the step, and a measure without codes, on all devices."""
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:EXPERTS]), ("expert",))
    # An expert's gradient is the sum over the devices already: of losses, not a mean.
    reducers: Any = {
        "shared": relaxjax.all_reduce("expert"),
        "own": optax.scale(1 / EXPERTS),
    }
    labels = {"shared": "shared", "own": "own"}
    tx = optax.chain(optax.partition(reducers, labels), optax.adamw(rate))

    def of_device(fn: Any) -> Any:
        return lambda state, *batch: jax.tree.map(
            lambda x: x[None], fn(jax.tree.map(lambda x: x[0], state), *batch)
        )

    def step(state: Any, batch: jax.Array) -> Any:
        params, opt_state = state
        grads, nats = jax.grad(loss_fn, has_aux=True)(params, batch, codes)
        updates, opt_state = tx.update(grads, opt_state, params)
        nats = jax.lax.pmean(nats, "expert")
        return (optax.apply_updates(params, updates), opt_state), nats

    def measure(state: Any, batch: jax.Array) -> Any:
        return jax.lax.pmean(loss_fn(state[0], batch, {})[1], "expert")

    own = P("expert")
    mapped = partial(jax.shard_map, mesh=mesh, check_vma=False, out_specs=own)
    start = of_device(lambda params: (params, tx.init(params)))
    return (
        jax.jit(mapped(start, in_specs=(own,))),
        jax.jit(mapped(of_device(step), in_specs=(own, own))),
        jax.jit(mapped(of_device(measure), in_specs=(own, own))),
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
        state, nats = step(state, batch)
        losses.append(float(nats[0]))
        batch = next(batches)
    sent = activations.traced_bytes(
        lambda params, batch: loss_fn(params, batch, codes)[0],
        jax.tree.map(lambda x: x[0], parts(seed)),
        batch[: len(batch) // EXPERTS],
        axes={"expert": EXPERTS},
    )
    trained, held_out = np.mean(losses[-50:]), measure(state, task.held_out)[0]
    return float(trained / np.log(2)), float(held_out / np.log(2)), sent["expert"]


if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", EXPERTS)  # emulated
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
    for name in CODES:
        runs = zip(*(main(name, seed=seed) for seed in seeds), strict=True)
        found, held_out, sent = runs
        print(
            f"{name}: {np.mean(found):.3f} bits a character, "
            f"{np.mean(held_out):.3f} held out, a device sends "
            f"{sent[0].forward:,} bytes forward and {sent[0].backward:,} backward"
        )

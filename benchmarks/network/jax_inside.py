"""Split models in the network bench: a transformer cut by tensors, or into stages.

Names of methods, with the codes of `relaxjax.activations` as options:

tensor     each host has a part of every layer, between Megatron's f and g
pipeline   each host has some layers; microbatches go through them one after the other

without "links" it is a host's own part alone, and computes as much; without
"computation" it is as many bytes in the same collectives of JAX, and nothing else.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks.network import worker
from benchmarks.network.problem import HEADS, ROWS, Problem
from relaxjax import activations, compression

AXIS, SYMBOLS, MICROBATCHES = "model", 128, 4
Code: TypeAlias = compression.Compressor | None


class Model(NamedTuple):
    """A split transformer.

    Attributes:
      hosts: number of parts.
      width: width of the model.
      layers: number of layers.
      batch: shape of the characters, [rows, time + 1].
      forward: code of activations, None as they are.
      backward: code of their gradients.
    """

    hosts: int
    width: int
    layers: int
    batch: tuple[int, int]
    forward: Code
    backward: Code

    @property
    def codes(self) -> dict[str, Any]:
        """Arguments of the functions of `relaxjax.activations`."""
        return {"forward": self.forward, "backward": self.backward}


def begin(
    method: dict[str, Any], problem: Problem, devices: Sequence[Any]
) -> worker.Session:
    """One of `NAMES`, from a start of its own; each host has the same rows.

    Args:
      method: name, options, rate and what is taken from it.
      problem: width, layers and batches.
      devices: one for each host.
    """
    batches, kind = problem.batches[:, :ROWS], NAMES[method["name"]]
    model = model_of(method, problem.size(), batches.shape[1:], len(devices))
    if method["without"] == "links":
        devices = jax.local_devices()[:1]
    mesh = Mesh(np.asarray(devices), AXIS)
    if method["without"] == "computation":
        state, step = _held(np.float32, mesh), partial(bare, kind)
    else:
        tx = optax.adam(method["rate"])
        state, step = _held(partial(_start, kind, tx, model), mesh), _step(kind, tx)
    run, taken = _mapped(step, model, mesh), itertools.count()

    def advance(_: np.ndarray) -> float:
        nonlocal state
        batch = batches[next(taken) % len(batches)].astype(np.int32)
        state, loss = run(state, batch)
        jax.block_until_ready(state)
        return float(loss.addressable_shards[0].data[0])

    return worker.Session(advance, lambda _: float("nan"))


def model_of(
    method: dict[str, Any], size: tuple[int, int], batch: tuple[int, int], hosts: int
) -> Model:
    """The model that a method asks for."""
    codes = {way: _code(method["options"].get(way)) for way in ("forward", "backward")}
    return Model(hosts, *size, batch, **codes)


def _code(element: str | None) -> Code:
    return None if element is None else compression.mx(element)


def _held(start: Callable[[int], Any], mesh: Mesh) -> Any:
    """Each host's own part, with the hosts as the first dimension."""
    devices, here = mesh.devices.tolist(), jax.process_index()
    own = {i: d for i, d in enumerate(devices) if d.process_index == here}

    def put(*parts: Any) -> jax.Array:
        shape = (len(devices), *np.shape(parts[0]))
        placed = [
            jax.device_put(np.asarray(part)[None], device)
            for part, device in zip(parts, own.values(), strict=True)
        ]
        sharding = NamedSharding(mesh, P(AXIS))
        return jax.make_array_from_single_device_arrays(shape, sharding, placed)

    return jax.tree.map(put, *(start(i) for i in own))


def _mapped(fn: Callable[..., Any], model: Model, mesh: Mesh) -> Callable[..., Any]:
    """A step of a host's own part, [...], over all hosts."""

    def step(state: Any, batch: jax.Array) -> Any:
        own = fn(model, jax.tree.map(lambda x: x[0], state), batch)
        return jax.tree.map(lambda x: x[None], own)

    specs = {"in_specs": (P(AXIS), P()), "out_specs": P(AXIS)}
    return jax.jit(jax.shard_map(step, mesh=mesh, check_vma=False, **specs))


def _start(kind: "Kind", tx: Any, model: Model, host: int) -> Any:
    params = kind.start(model, host)
    return params, tx.init(params)


def _step(kind: "Kind", tx: Any) -> Callable[..., Any]:
    def step(model: Model, state: Any, batch: jax.Array) -> Any:
        params, opt_state = state
        loss, grads = jax.value_and_grad(kind.loss)(params, batch, model)
        updates, opt_state = tx.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    return step


def _params(model: Model, layers: int, parts: int, seed: int) -> Any:
    """Params of so many layers, of which this is one of so many parts."""
    rng, w, heads = np.random.default_rng(seed), model.width, HEADS // parts
    layer = {
        "queries_keys_values": (3, w, heads, w // HEADS),
        "mix": (heads, w // HEADS, w),
        "widen": (w, 4 * w // parts),
        "narrow": (4 * w // parts, w),
    }
    shapes = {
        "layers": [layer] * layers,
        "symbols": (SYMBOLS, w),
        "positions": (model.batch[1] - 1, w),
        "output": (w, SYMBOLS),
    }
    return jax.tree.map(
        lambda shape: rng.normal(0, 0.05, shape).astype(np.float32),
        shapes,
        is_leaf=lambda node: isinstance(node, tuple),
    )


def _normalized(x: jax.Array) -> jax.Array:
    return x * lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def _layer(layer: Any, x: jax.Array, f: Any, g: Any) -> jax.Array:
    """Attention and a perceptron, each between f and g."""
    here = f(_normalized(x))
    q, k, v = jnp.einsum("rti,pihd->prthd", here, layer["queries_keys_values"])
    heads = jax.nn.dot_product_attention(q, k, v, is_causal=True)
    x = x + g(jnp.einsum("rthd,hdo->rto", heads, layer["mix"]))
    return x + g(jax.nn.gelu(f(_normalized(x)) @ layer["widen"]) @ layer["narrow"])


def _nats(params: Any, x: jax.Array, following: jax.Array) -> jax.Array:
    logits = _normalized(x) @ params["output"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, following).mean()


def _tensor_start(model: Model, host: int) -> Any:
    """What all have is drawn alike, and so is each part: no loss is read from it."""
    del host
    return _params(model, model.layers, model.hosts, 0)


def _tensor_loss(params: Any, batch: jax.Array, model: Model) -> jax.Array:
    f = partial(activations.copy, axis_name=AXIS, **model.codes)
    g = partial(activations.all_reduce, axis_name=AXIS, **model.codes)
    x = params["symbols"][batch[:, :-1]] + params["positions"]
    for layer in params["layers"]:
        x = _layer(layer, x, f, g)
    return _nats(params, x, batch[:, 1:])


def _sums(model: Model) -> int:
    """Sums that are taken each way."""
    return 2 * model.layers


def _summed(model: Model, code: Code, way: int, x: jax.Array) -> jax.Array:
    """A sum of as many bytes: two transfers where it is in codes."""
    del way
    rows = model.batch[0] * (model.batch[1] - 1)
    if code is None:
        return lax.psum(jnp.full((rows, model.width), x), AXIS)[0, 0]
    part = jnp.full((model.hosts, -(-rows // model.hosts), _bytes(model, code)), x)
    part = lax.all_to_all(part.astype(jnp.uint8), AXIS, 0, 0)
    return lax.all_gather(part[0], AXIS)[0, 0, 0].astype(jnp.float32)


def _pipeline_start(model: Model, host: int) -> Any:
    return _params(model, model.layers // model.hosts, 1, host)


def _pipeline_loss(params: Any, batch: jax.Array, model: Model) -> jax.Array:
    """The loss of the last stage's microbatches; other stages give 0."""
    here, n = lax.axis_index(AXIS), lax.axis_size(AXIS)
    small = batch.reshape(MICROBATCHES, -1, batch.shape[1])

    def tick(arrived: jax.Array, turn: jax.Array) -> Any:
        entering = small[jnp.minimum(turn, MICROBATCHES - 1)]
        leaving = small[jnp.clip(turn - model.hosts + 1, 0, MICROBATCHES - 1)]
        x = params["symbols"][entering[:, :-1]] + params["positions"]
        x = jnp.where(here == 0, x, arrived)
        for layer in params["layers"]:
            x = _layer(layer, x, lambda y: y, lambda y: y)
        nats = _nats(params, x, leaving[:, 1:])
        onward = activations.send(x, AXIS, _pairs(n, 1), **model.codes)
        return onward, jnp.where(turn >= model.hosts - 1, nats, 0)

    nothing = jnp.zeros((small.shape[1], batch.shape[1] - 1, model.width))
    _, nats = lax.scan(tick, nothing, jnp.arange(_turns(model)))
    return jnp.where(here == n - 1, nats.sum() / MICROBATCHES, 0.0)


def _turns(model: Model) -> int:
    """Messages each way, the last of which nobody needs."""
    return MICROBATCHES + model.hosts - 1


def _sent(model: Model, code: Code, way: int, x: jax.Array) -> jax.Array:
    """A microbatch's message to the next stage, or to the one before."""
    rows = model.batch[0] // MICROBATCHES * (model.batch[1] - 1)
    part = jnp.full((rows, _bytes(model, code)), x.astype(jnp.uint8))
    part = lax.ppermute(part, AXIS, _pairs(model.hosts, way))
    return part[0, 0].astype(jnp.float32)


def _pairs(n: int, way: int) -> list[tuple[int, int]]:
    return [(i, i + 1) if way > 0 else (i + 1, i) for i in range(n - 1)]


def _bytes(model: Model, code: Code) -> int:
    """Bytes of a row."""
    row = jax.ShapeDtypeStruct((1, model.width), jnp.float32)
    return activations.sent_bytes("send", row, model.hosts, forward=code).forward


def bare(kind: "Kind", model: Model, x: jax.Array, batch: jax.Array) -> Any:
    """The legs one after the other, each of what the one before has brought."""
    del batch
    for code, way in ((model.forward, 1), (model.backward, -1)):
        leg = partial(kind.leg, model, code, way)
        x = lax.fori_loop(0, kind.legs(model), lambda _, x, leg=leg: 0 * leg(x), x)
    return x, x


class Kind(NamedTuple):
    """A way to split: params of a host, its loss, legs each way, and one of them."""

    start: Callable[[Model, int], Any]
    loss: Callable[[Any, jax.Array, Model], jax.Array]
    legs: Callable[[Model], int]
    leg: Callable[[Model, Code, int, jax.Array], jax.Array]


NAMES = {
    "tensor": Kind(_tensor_start, _tensor_loss, _sums, _summed),
    "pipeline": Kind(_pipeline_start, _pipeline_loss, _turns, _sent),
}
"""How a model is split, by the method's name."""

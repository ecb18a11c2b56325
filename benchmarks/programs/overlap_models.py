"""What is trained in programs whose overlap is compared, as shapes only.

Where gradients appear one by one, in the unrolled models, buckets after the backward
pass will do. A loop over layers, or over microbatches, gives all of its gradients at
its end: there the reducer belongs inside, which each such model has a way to do.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jax import lax

from benchmarks import models
from relaxjax import reduce_in_backward, scan_layers

Gradient = Callable[[Any, Any], tuple[jax.Array, Any]]
"""From (params, batch) to the loss and the gradient."""


class Workload(NamedTuple):
    """A model, its batch and its gradient.

    Attributes:
      loss: `loss(params, batch)`, a scalar.
      params: shapes of the params.
      batch: shapes of one device's share of the batch.
      gradient: the local gradient, as a user would write it.
      inside: functions by name, from a reducer to a gradient that comes out reduced.
    """

    loss: Callable[[Any, Any], jax.Array]
    params: Any
    batch: Any
    gradient: Gradient
    inside: Mapping[str, Callable[[optax.GradientTransformation], Gradient]] = {}


def perceptron(*, layers: int = 6, width: int = 1024, rows: int = 4096) -> Workload:
    """Square layers, without biases."""
    matrix = jax.ShapeDtypeStruct((width, width), jnp.float32)

    def loss(params, x):
        for i in range(layers):
            x = jnp.tanh(x @ params[f"layer{i}"])
        return jnp.mean(x**2)

    batch = jax.ShapeDtypeStruct((rows, width), jnp.float32)
    params = {f"layer{i}": matrix for i in range(layers)}
    return Workload(loss, params, batch, jax.value_and_grad(loss))


def transformer(
    *, layers: int = 12, width: int = 768, vocabulary: int = 8192
) -> Workload:
    """A decoder with its layers unrolled, on 8 sequences of 512 tokens."""
    model = models.transformer(models.Transformer(layers, width, vocabulary))
    (tokens,) = model.args
    return Workload(model.loss, model.params, tokens, jax.value_and_grad(model.loss))


def scanned(*, layers: int = 12, width: int = 768, vocabulary: int = 8192) -> Workload:
    """The same decoder as a `lax.scan` over its layers."""
    block, head = models.TransformerBlock(), nn.Dense(vocabulary)
    tokens = jax.ShapeDtypeStruct((8, 512), jnp.int32)
    x = jax.ShapeDtypeStruct((8, 512, width), jnp.float32)
    one = jax.eval_shape(block.init, jax.random.key(0), x)["params"]
    params = {
        "embed": jax.ShapeDtypeStruct((vocabulary, width), jnp.float32),
        "layers": jax.tree.map(
            lambda p: jax.ShapeDtypeStruct((layers, *p.shape), p.dtype), one
        ),
        "head": jax.eval_shape(head.init, jax.random.key(0), x)["params"],
    }

    def layer(p, x):
        return block.apply({"params": p}, x)

    def plain_scan(stack, x, wrap=lambda p: p):
        return lax.scan(lambda x, p: (layer(wrap(p), x), None), x, stack)[0]

    def loss(params, tokens, run=plain_scan, wrap=lambda p: p):
        x = run(params["layers"], wrap(params["embed"])[tokens])
        logits: Any = head.apply({"params": wrap(params["head"])}, x)
        return jnp.mean(jax.nn.log_softmax(logits)[..., 0])

    def in_each_layer(reducer):
        wrap = functools.partial(reduce_in_backward, reducer=reducer)
        run = functools.partial(plain_scan, wrap=wrap)
        return jax.value_and_grad(functools.partial(loss, run=run, wrap=wrap))

    def one_layer_late(reducer):
        wrap = functools.partial(reduce_in_backward, reducer=reducer)
        run = functools.partial(scan_layers, layer, reducer=reducer)
        return jax.value_and_grad(functools.partial(loss, run=run, wrap=wrap))

    ways = {"reduce_in_backward": in_each_layer, "scan_layers": one_layer_late}
    return Workload(loss, params, tokens, jax.value_and_grad(loss), ways)


def microbatched(
    *, layers: int = 12, width: int = 768, vocabulary: int = 8192, microbatches: int = 4
) -> Workload:
    """The unrolled decoder, with its gradient gathered over microbatches."""
    model = transformer(layers=layers, width=width, vocabulary=vocabulary)

    def gathered(params, batch):
        return over(params, jnp.swapaxes(batch, 0, 1))

    def over(params, microbatches):
        def add(total, tokens):
            both = jax.value_and_grad(model.loss)(params, tokens)
            return jax.tree.map(jnp.add, total, both), None

        nothing = jax.tree.map(jnp.zeros_like, (jnp.float32(0), params))
        return lax.scan(add, nothing, microbatches)[0]

    def inside(reducer):
        def gradient(params, batch):
            every = jnp.swapaxes(batch, 0, 1)
            rest, total = over(params, every[:-1])

            def last(params):
                params = reduce_in_backward(params, reducer, accumulated=total)
                return model.loss(params, every[-1])

            loss, grads = jax.value_and_grad(last)(params)
            return rest + loss, grads

        return gradient

    rows, length = model.batch.shape
    shape = (rows, microbatches, length)
    batch = jax.ShapeDtypeStruct(shape, model.batch.dtype)
    return Workload(
        model.loss, model.params, batch, gathered, {"reduce_in_backward": inside}
    )


MODELS = {
    "6-layer perceptron": perceptron,
    "12-layer transformer": transformer,
    "scanned transformer": scanned,
    "4 microbatches": microbatched,
}

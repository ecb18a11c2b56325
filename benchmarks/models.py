"""Models whose graphs the orders are compared on, in flax, as shapes only.

VGG-16 (Simonyan and Zisserman 2015), ResNet-50 (He et al. 2016), Inception v1 (Szegedy
et al. 2015, without its auxiliary heads), a decoder-only transformer, a two-tower
recommender and a mixture of experts. Normalization uses frozen statistics, so that a
model is a function of its parameters and one batch. Nothing is ever computed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from benchmarks.image_models import VGG16, Inception, ResNet50


class ImageModel(NamedTuple):
    """A model as shapes.

    Attributes:
      apply: `apply(params, *args)` returns outputs.
      params: pytree of `jax.ShapeDtypeStruct`.
      args: one batch, as shapes.
    """

    apply: Callable[..., Any]
    params: Any
    args: tuple[Any, ...]

    def loss(self, params: Any, *args: Any) -> jax.Array:
        """A scalar that depends on every output."""
        return jnp.mean(jax.nn.log_softmax(self.apply(params, *args))[..., 0])


def decoder_layer(x: jax.Array, mask: jax.Array) -> jax.Array:
    """Attention and feed-forward, in the module that calls it; heads are 64 wide."""
    width = x.shape[-1]
    y = nn.LayerNorm()(x)
    x += nn.MultiHeadDotProductAttention(width // 64)(y, y, mask=mask)
    y = nn.Dense(4 * width)(nn.LayerNorm()(x))
    return x + nn.Dense(width)(nn.gelu(y))


class Transformer(nn.Module):
    """A decoder: pre-norm attention and feed-forward layers."""

    layers: int = 12
    width: int = 768
    vocabulary: int = 32_000

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits of tokens [batch, length]."""
        x = nn.Embed(self.vocabulary, self.width)(tokens)
        mask = nn.make_causal_mask(tokens)
        for _ in range(self.layers):
            x = decoder_layer(x, mask)
        return nn.Dense(self.vocabulary)(nn.LayerNorm()(x))


class TransformerBlock(nn.Module):
    """One layer of the decoder."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Activations [batch, length, width] from activations of that shape."""
        return decoder_layer(x, nn.make_causal_mask(x[..., 0]))


class TwoTower(nn.Module):
    """Users and items: embeddings of several features, a tower each, a dot product."""

    features: int = 6

    @nn.compact
    def __call__(self, user: jax.Array, item: jax.Array) -> jax.Array:
        """Scores [batch, batch] of ids [batch, features]."""
        towers = []
        for ids in (user, item):
            rows = [
                nn.Embed(20_000 * (f + 1), 64)(ids[:, f]) for f in range(self.features)
            ]
            x = jnp.concatenate(rows, axis=-1)
            for width in (1024, 512, 256):
                x = nn.relu(nn.Dense(width)(x))
            towers.append(nn.Dense(128)(x))
        return towers[0] @ towers[1].T


class Experts(nn.Module):
    """A layer of experts behind a gate, every expert with leaves of its own."""

    experts: int = 16
    width: int = 1024

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Outputs [batch, width] of inputs [batch, width]."""
        gate = jax.nn.softmax(nn.Dense(self.experts)(x))
        capacity = 2 * x.shape[0] // self.experts  # rows for each expert, top 2
        out = jnp.zeros_like(x)
        for i in range(self.experts):
            weight, chosen = jax.lax.top_k(gate[:, i], capacity)
            y = nn.relu(nn.Dense(4 * self.width)(x[chosen]))
            out = out.at[chosen].add(nn.Dense(self.width)(y) * weight[:, None])
        return out


def _of(module: nn.Module, *args: jax.ShapeDtypeStruct) -> ImageModel:
    variables = jax.eval_shape(module.init, jax.random.key(0), *args)

    def apply(params: Any, *batch: jax.Array) -> Any:
        return module.apply({"params": params}, *batch)

    return ImageModel(apply, variables["params"], args)


def _floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _ids(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def transformer(module: Transformer) -> ImageModel:
    """A decoder on 8 sequences of 512 tokens."""
    return _of(module, _ids(8, 512))


MODELS: dict[str, Callable[[], ImageModel]] = {
    "vgg16": lambda: _of(VGG16(), _floats(32, 224, 224, 3)),
    "resnet50": lambda: _of(ResNet50(), _floats(32, 224, 224, 3)),
    "inception": lambda: _of(Inception(), _floats(32, 224, 224, 3)),
    "transformer": lambda: transformer(Transformer()),
    "two_tower": lambda: _of(TwoTower(), _ids(1024, 6), _ids(1024, 6)),
    "experts": lambda: _of(Experts(), _floats(1024, 1024)),
}
"""Models by name; each is traced when it is asked for."""
CNNS = ("vgg16", "resnet50", "inception")
"""Models whose forward graphs are chains of layers."""

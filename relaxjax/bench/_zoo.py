"""Models whose graphs the orders are compared on, in flax, as shapes only.

VGG-16 (Simonyan and Zisserman 2015), ResNet-50 (He et al. 2016), Inception v1 (Szegedy
et al. 2015, without its auxiliary heads), a decoder-only transformer, a two-tower
recommender and a mixture of experts. Normalization uses frozen statistics, so that a
model is a function of its parameters and one batch. Nothing is ever computed.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp


class Model(NamedTuple):
    """A model as shapes.

    Attributes:
        apply: called as `apply(params, *args)`, returns outputs.
        params: pytree of `jax.ShapeDtypeStruct`.
        args: one batch, as shapes.
    """

    apply: Callable[..., Any]
    params: Any
    args: tuple[Any, ...]

    def loss(self, params: Any, *args: Any) -> jax.Array:
        """A scalar that every output bears on.

        Args:
            params: of the model.
            *args: one batch.
        """
        return jnp.mean(jax.nn.log_softmax(self.apply(params, *args))[..., 0])


class VGG16(nn.Module):
    """Thirteen convolutions and three dense layers."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of images [batch, 224, 224, 3]."""
        for block, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(depth):
                x = nn.relu(nn.Conv(block, (3, 3))(x))
            x = nn.max_pool(x, (2, 2), (2, 2))
        x = x.reshape(x.shape[0], -1)
        for width in (4096, 4096):
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(1000)(x)


class Affine(nn.Module):
    """Batch normalization with frozen statistics: a scale and a bias."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Normalized activations, in the shape of `x`."""
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],))
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],))
        return x * scale + bias


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions around a shortcut."""

    width: int
    stride: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Activations [batch, h / stride, w / stride, 4 width]."""
        strides = (self.stride, self.stride)
        y = nn.relu(Affine()(nn.Conv(self.width, (1, 1), use_bias=False)(x)))
        y = nn.Conv(self.width, (3, 3), strides, use_bias=False)(y)
        y = nn.Conv(4 * self.width, (1, 1), use_bias=False)(nn.relu(Affine()(y)))
        y = Affine()(y)
        if x.shape != y.shape:
            shortcut = nn.Conv(4 * self.width, (1, 1), strides, use_bias=False)
            x = Affine()(shortcut(x))
        return nn.relu(x + y)


class ResNet50(nn.Module):
    """Sixteen bottlenecks."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of images [batch, 224, 224, 3]."""
        x = nn.relu(Affine()(nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for stage, depth in enumerate((3, 4, 6, 3)):
            for i in range(depth):
                x = Bottleneck(64 * 2**stage, 2 if stage and not i else 1)(x)
        return nn.Dense(1000)(x.mean(axis=(1, 2)))


INCEPTION = (
    (64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64), (),
    (192, 96, 208, 16, 48, 64), (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64), (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128), (),
    (256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128),
)  # fmt: skip
"""Widths of each block's branches; () is a pooling layer between blocks."""


class Inception(nn.Module):
    """Blocks of four branches side by side."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of images [batch, 224, 224, 3]."""
        x = nn.max_pool(self.conv(x, 64, 7, 2), (3, 3), (2, 2), "SAME")
        x = self.conv(self.conv(x, 64, 1), 192, 3)
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for widths in INCEPTION:
            if widths:
                x = self.block(x, widths)
            else:
                x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        return nn.Dense(1000)(x.mean(axis=(1, 2)))

    def conv(self, x: jax.Array, width: int, size: int, stride: int = 1) -> jax.Array:
        """A convolution with its nonlinearity."""
        return nn.relu(nn.Conv(width, (size, size), (stride, stride))(x))

    def block(self, x: jax.Array, widths: Sequence[int]) -> jax.Array:
        """1x1, 3x3, 5x5 and pooled branches, concatenated."""
        one, reduce3, three, reduce5, five, pooled = widths
        return jnp.concatenate(
            [
                self.conv(x, one, 1),
                self.conv(self.conv(x, reduce3, 1), three, 3),
                self.conv(self.conv(x, reduce5, 1), five, 5),
                self.conv(nn.max_pool(x, (3, 3), (1, 1), "SAME"), pooled, 1),
            ],
            axis=-1,
        )


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


class Block(nn.Module):
    """One layer of the decoder."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Activations [batch, length, width] to such."""
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


def _of(module: nn.Module, *args: jax.ShapeDtypeStruct) -> Model:
    variables = jax.eval_shape(module.init, jax.random.key(0), *args)

    def apply(params: Any, *batch: jax.Array) -> Any:
        return module.apply({"params": params}, *batch)

    return Model(apply, variables["params"], args)


def _floats(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _ids(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def transformer(module: Transformer) -> Model:
    """A decoder on 8 sequences of 512 tokens.

    Args:
        module: of any depth and width.
    """
    return _of(module, _ids(8, 512))


MODELS: dict[str, Callable[[], Model]] = {
    "vgg16": lambda: _of(VGG16(), _floats(32, 224, 224, 3)),
    "resnet50": lambda: _of(ResNet50(), _floats(32, 224, 224, 3)),
    "inception": lambda: _of(Inception(), _floats(32, 224, 224, 3)),
    "transformer": lambda: transformer(Transformer()),
    "two_tower": lambda: _of(TwoTower(), _ids(1024, 6), _ids(1024, 6)),
    "experts": lambda: _of(Experts(), _floats(1024, 1024)),
}
"""Models by name; each is traced when it is asked for."""
CNNS = ("vgg16", "resnet50", "inception")
"""Those whose forward graphs are chains of layers."""

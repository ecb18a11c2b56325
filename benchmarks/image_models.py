"""Image models that the orders are compared on, in flax.

VGG-16 (Simonyan and Zisserman 2015), ResNet-50 (He et al. 2016), and Inception v1
(Szegedy et al. 2015) without its auxiliary heads.
"""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp


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

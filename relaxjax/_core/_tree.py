"""The names, shapes and dtypes of a tree's leaves, as plain data that can be compared.

A transformation keeps the layout that its `init` saw, so that a tree that has changed
since is an error that names the leaf, at trace time and under every mapping. Sums and
means are taken in float32 where a dtype is narrower.
"""

import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


def natural_key(name: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts names in the order that a person expects, 2 before 10.

    Example:
      >>> sorted(["layer10", "layer2"], key=natural_key)
      ['layer2', 'layer10']
    """
    parts = re.split(r"(\d+)", name)  # texts and numbers by turns
    return tuple((int(p) if p.isdecimal() else 0, p) for p in parts)


def key_path(path: Any) -> str:
    """A key path of `jax.tree.leaves_with_path` as text, joined by slashes."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def leaf_name(path: Any) -> str:
    """The name of the leaf at a key path; "params" for a bare array."""
    return key_path(path) or "params"


def leaf_names(tree: Any) -> list[str]:
    """The key path of each leaf; "" for a bare array."""
    return [key_path(path) for path, _ in jax.tree.leaves_with_path(tree)]


class Layout(NamedTuple):
    """A line `name dtype[shape]` for each leaf; a pytree node without leaves.

    It has none either for those who walk named tuples by themselves (`optax.tree.set`,
    flax's serialization): its only field is a dict of nothing but None.

    Attributes:
      lines: the lines, as keys, in the tree's own order.
    """

    lines: dict[str, None]

    # Static data of a pytree node takes part in comparisons of tree structures.
    # `optax.tree.map_params` calls `init` with a placeholder that has no leaves and
    # compares what comes out with the real state: the empty layout equals any other.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return False
        return not self.lines or not other.lines or self.lines == other.lines

    def __repr__(self) -> str:
        """The text of 0.2.0, of which checkpoints hold digests."""
        text = "\n".join(self.lines)
        return f"Layout(lines={text!r})"

    def __ne__(self, other: object) -> bool:  # a tuple brings its own
        return not self == other

    def __hash__(self) -> int:
        return hash(Layout)

    @property
    def leaves(self) -> dict[str, str]:
        """Dtype and shape of each leaf, as in `float32[3,4]`, by its name."""
        parts = (line.rpartition(" ") for line in self.lines)
        return {name: spelling for name, _, spelling in parts}


jax.tree_util.register_static(Layout)


def dtype_and_shape(leaf: Any) -> str:
    """Dtype and shape of an array, as in `float32[3,4]`."""
    aval = jax.typeof(leaf)
    return f"{aval.dtype}[{','.join(map(str, aval.shape))}]"


def layout_of(tree: Any) -> Layout:
    """The layout of a tree of arrays or `jax.ShapeDtypeStruct`."""
    leaves = zip(leaf_names(tree), jax.tree.leaves(tree), strict=True)
    return Layout({f"{name} {dtype_and_shape(x)}": None for name, x in leaves})


def is_narrow(dtype: jnp.dtype) -> bool:
    """Whether a dtype is a float of less than 32 bits."""
    return bool(jnp.issubdtype(dtype, jnp.floating)) and dtype.itemsize < 4


def wide(dtype: jnp.dtype) -> jnp.dtype:
    """The dtype for sums and means: at least float32 (8-bit floats do not promote)."""
    if is_narrow(dtype) or not jnp.issubdtype(dtype, jnp.inexact):
        return jnp.dtype(jnp.float32)
    return dtype


def wide_copy(tree: Any) -> Any:
    """A copy in `wide` dtypes; the tree itself may be donated to the step."""
    return jax.tree.map(lambda x: jnp.array(x, wide(x.dtype)), tree)


def widened(tree: Any) -> Any:
    """The tree with leaves in float32 where they are narrower."""
    return jax.tree.map(lambda x: x.astype(wide(x.dtype)), tree)


def is_key(x: jax.Array) -> bool:
    """Whether an array holds typed PRNG keys."""
    return bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))

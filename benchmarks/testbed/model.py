"""A model as layers that compute one by one, so that each waits for its own leaves.

A layer is a function of its parameters and of what other layers give. What one jitted
program would hide, here is seen: which leaves each layer needs, and when it runs.

Cost: none; plain data.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import numpy as np

from relaxjax._core._checks import check_type
from relaxjax._core._tree import leaf_name

INPUT = "input"
"""What stands in `needs` for the batch's inputs."""


@dataclass(frozen=True)
class Layer:
    """One layer: it computes as soon as its leaves and its inputs are there.

    Attributes:
      name: unique in its model; its leaves are called "name/path".
      apply: `apply(params, *inputs)` gives an array whose first axis is the batch.
        Workers are processes, so it must be importable: a function of a module, or
        a `functools.partial` of one.
      params: a pytree of arrays; `()` for none.
      needs: layers whose outputs it takes, in order, or "input" for the batch's
        inputs; by default the layer before it.

    Example:
      >>> import operator
      >>> Layer("scale", operator.mul, np.ones(3)).name
      'scale'
    """

    name: str
    apply: Callable[..., Any]
    params: Any = ()
    needs: tuple[str, ...] | None = None


@dataclass(frozen=True)
class LayerModel:
    """Layers in an order in which they can be computed; the last gives the output.

    Attributes:
      layers: each after the ones it needs.
      loss: `loss(output, targets)` gives a scalar, a mean over the rows; importable.
        For training only.

    Raises:
      TypeError: `layers` holds something that is not a `Layer`.
      ValueError: there are no layers or no parameters, a name is used twice, a layer
        needs a later or unknown one, or no layer needs it.

    Example:
      >>> import operator
      >>> LayerModel([Layer("scale", operator.mul, np.ones(3))]).nbytes
      {'scale/params': 24}
    """

    layers: Sequence[Layer]
    loss: Callable[[Any, Any], Any] | None = None

    def __post_init__(self) -> None:
        """Checks the layers."""
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers:
            raise ValueError("layers must hold at least one Layer, got none")
        names = [INPUT]
        for place, layer in enumerate(self.layers):
            check_type(f"layers[{place}]", layer, Layer, "give Layer(name, apply, ...)")
            if layer.name in names:
                raise ValueError(f"layers[{place}]: name {layer.name!r} is taken")
            names.append(layer.name)
        self._check_needs()
        if not self.leaves:
            raise ValueError("layers have no parameters: nothing is to be pulled")

    def _check_needs(self) -> None:
        known = [INPUT]
        for layer in self.layers:
            if unknown := [n for n in self.needs[layer.name] if n not in known]:
                raise ValueError(
                    f"layer {layer.name!r} needs {unknown}, which no layer before it "
                    f"gives: list layers after the ones they need ({known} are known)"
                )
            known.append(layer.name)
        needed = {need for needs in self.needs.values() for need in needs}
        if idle := [n for n in known[1:-1] if n not in needed]:
            raise ValueError(f"no layer needs layers {idle}: leave them out")

    @cached_property
    def needs(self) -> dict[str, tuple[str, ...]]:
        """The names of each layer's inputs."""
        before = [INPUT, *(layer.name for layer in self.layers)]
        return {
            layer.name: (previous,) if layer.needs is None else tuple(layer.needs)
            for previous, layer in zip(before, self.layers, strict=False)
        }

    @cached_property
    def of_layer(self) -> dict[str, tuple[str, ...]]:
        """The names of each layer's leaves."""
        return {
            layer.name: tuple(
                f"{layer.name}/{leaf_name(path)}"
                for path, _ in jax.tree_util.tree_leaves_with_path(layer.params)
            )
            for layer in self.layers
        }

    @cached_property
    def leaves(self) -> dict[str, np.ndarray]:
        """Every leaf by its name, in the layers' order: each is one transfer."""
        return {
            name: np.asarray(leaf)
            for layer in self.layers
            for name, leaf in zip(
                self.of_layer[layer.name], jax.tree.leaves(layer.params), strict=True
            )
        }

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes of each transfer."""
        return {name: leaf.nbytes for name, leaf in self.leaves.items()}

    def unflatten(self, leaves: dict[str, Any]) -> list[Any]:
        """The layers' params, from every leaf by name."""
        return [
            jax.tree.unflatten(
                jax.tree.structure(layer.params),
                [leaves[name] for name in self.of_layer[layer.name]],
            )
            for layer in self.layers
        ]

    def shapes_only(self) -> "LayerModel":
        """The model with shapes in place of its parameters, for the workers."""
        bare = [
            Layer(
                layer.name,
                layer.apply,
                jax.tree.map(_shape, layer.params),
                self.needs[layer.name],
            )
            for layer in self.layers
        ]
        return _Bare(bare, self.loss)


class _Bare(LayerModel):
    """A model whose leaves are shapes."""

    @cached_property
    def leaves(self) -> dict[str, Any]:
        """Shapes and dtypes by name."""
        return {
            name: leaf
            for layer in self.layers
            for name, leaf in zip(
                self.of_layer[layer.name], jax.tree.leaves(layer.params), strict=True
            )
        }


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    array = np.asarray(leaf)
    return jax.ShapeDtypeStruct(array.shape, array.dtype)

"""A layer's two programs: forward, and backward from what the forward pass saved.

Cost: each is compiled once for each shape of its inputs.
"""

from collections.abc import Callable
from typing import Any

import jax

from benchmarks.testbed.model import INPUT, Layer


class Stage:
    """A layer, compiled."""

    def __init__(self, layer: Layer, inputs: tuple[str, ...]):
        self.name, self.inputs = layer.name, inputs
        self.needs = set(inputs)
        self.inner = tuple(need for need in inputs if need != INPUT)
        self._tree = jax.tree.structure(layer.params)
        self._apply = layer.apply
        self._plain = jax.jit(self._forward)
        self._saved = jax.jit(self._forward_saving)

    def run(self, leaves: list[Any], inputs: list[Any], keep: bool) -> tuple[Any, Any]:
        """The output and, with `keep`, what the backward pass needs."""
        return (
            self._saved(leaves, inputs) if keep else (self._plain(leaves, inputs), ())
        )

    def _forward(self, leaves: list[Any], inputs: list[Any]) -> Any:
        return self._apply(jax.tree.unflatten(self._tree, leaves), *inputs)

    def _forward_saving(self, leaves: list[Any], inputs: list[Any]) -> tuple[Any, Any]:
        """Differentiated by its leaves and by what other layers gave."""
        inner = [x for n, x in zip(self.inputs, inputs, strict=True) if n != INPUT]

        def of(leaves: list[Any], inner: list[Any]) -> Any:
            rest = iter(inner)
            full = [
                x if name == INPUT else next(rest)
                for name, x in zip(self.inputs, inputs, strict=True)
            ]
            return self._forward(leaves, full)

        return jax.vjp(of, leaves, inner)


@jax.jit
def pull_back(back: Any, slope: Any) -> tuple[list[Any], list[Any]]:
    """Gradients of a layer's leaves, and slopes of what it took from other layers."""
    return back(slope)


def loss_and_gradient(loss: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The compiled loss with its slope."""
    return jax.jit(jax.value_and_grad(loss))

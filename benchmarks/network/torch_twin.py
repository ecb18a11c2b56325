"""The chars model once more, in PyTorch: the same function of the same arrays.

Leaves keep the names that they have in JAX. A kernel is transposed, as PyTorch's own
layers have it; everything else is as it is.

PyTorch is for this benchmark alone, and imported when it is called.
"""

import functools
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import numpy as np

_EPSILON = 1e-6  # of flax's normalization


def arrays_of(params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The leaves of the JAX model, by name, in PyTorch's layout."""
    return {
        name: np.ascontiguousarray(x.T) if "kernel" in name else x
        for name, x in params.items()
    }


def twin(params: Mapping[str, np.ndarray], *, heads: int) -> Any:
    """A `torch.nn.Module`: from symbols to the mean loss in nats.

    Args:
      params: params of the JAX model, by name.
      heads: heads of its attention.

    Raises:
      ImportError: PyTorch is missing.
    """
    torch = import_module("torch")

    class Twin(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            arrays = arrays_of(params).items()
            leaves = {n: torch.nn.Parameter(torch.tensor(x)) for n, x in arrays}
            self.leaves = torch.nn.ParameterDict(leaves)

        def forward(self, symbols: Any) -> Any:
            return loss(self.leaves, symbols, heads=heads)

    return Twin()


def loss(leaves: Any, symbols: Any, *, heads: int) -> Any:
    """The mean of -ln p(next symbol) over the positions of uint8[rows, time + 1]."""
    functional = import_module("torch.nn.functional")
    symbols = symbols.long()
    inputs, targets = symbols[:, :-1], symbols[:, 1:]
    positions = leaves["positions/embedding"][: inputs.shape[1]]
    x = functional.embedding(inputs, leaves["symbols/embedding"]) + positions
    blocks = {name.split("/")[1] for name in leaves if name.startswith("blocks/")}
    for number in range(len(blocks)):
        x = _block(x, functools.partial(_leaf, leaves, f"blocks/{number}/"), heads)
    of_model = functools.partial(_leaf, leaves, "")
    logits = _linear(_norm(x, of_model, "norm"), of_model, "output")
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def _block(x: Any, leaf: Any, heads: int) -> Any:
    """Attention, then a perceptron, each after a normalization."""
    functional = import_module("torch.nn.functional")
    rows, time, width = x.shape
    projected = _linear(_norm(x, leaf, "norm"), leaf, "queries_keys_values")
    split = projected.reshape(rows, time, 3, heads, -1).permute(2, 0, 3, 1, 4)
    attended = functional.scaled_dot_product_attention(*split, is_causal=True)
    joined = attended.transpose(1, 2).reshape(rows, time, width)
    x = x + _linear(joined, leaf, "mix")
    wide = _linear(_norm(x, leaf, "second_norm"), leaf, "widen")
    return x + _linear(functional.gelu(wide, approximate="tanh"), leaf, "narrow")


def _leaf(leaves: Any, prefix: str, name: str) -> Any:
    return leaves[f"{prefix}{name}"]


def _linear(x: Any, leaf: Any, name: str) -> Any:
    functional = import_module("torch.nn.functional")
    return functional.linear(x, leaf(f"{name}/kernel"), leaf(f"{name}/bias"))


def _norm(x: Any, leaf: Any, name: str) -> Any:
    functional = import_module("torch.nn.functional")
    scale, bias = leaf(f"{name}/scale"), leaf(f"{name}/bias")
    return functional.layer_norm(x, x.shape[-1:], scale, bias, _EPSILON)

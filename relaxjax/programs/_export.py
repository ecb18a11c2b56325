"""States in programs that `jax.export` writes to a file.

A serialized program holds the trees of its arguments, and JAX writes the classes that
are registered alone. Of a state those are named tuples, of optax and relaxjax, and
three nodes of relaxjax that keep something static:

    Layout      its lines, as JSON
    Clock       ends, phase and whether a host sets it, as JSON
    OfLeaves    nothing

Cost: a walk over the tree.
"""

import json
from collections.abc import Callable
from typing import Any

import jax
from jax import export

from relaxjax._core._phases import Clock
from relaxjax._core._tree import Layout
from relaxjax._core.foreign._json import parsed
from relaxjax._core.layouts._state_specs import OfLeaves


def register_for_export(state: Any) -> list[str]:
    """Registers the classes of a state with `jax.export`, to write programs of it.

    Call it before `exported.serialize()`, and in the process that reads the program
    before `jax.export.deserialize`, there with a state of the same transformation. What
    is registered already stays as it is. Classes that are neither named tuples nor
    relaxjax's are the caller's to register.

    Args:
      state: a pytree, such as `opt_state`; `jax.ShapeDtypeStruct` will do as leaves.

    Returns:
      Names of the classes that were registered by this call.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> tx = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1))
      >>> names = relaxjax.programs.register_for_export(tx.init(jnp.zeros(3)))
      >>> relaxjax.programs.register_for_export(tx.init(jnp.zeros(3)))
      []
    """
    names = []
    for kind in _kinds(state):
        name = f"{kind.__module__}.{kind.__qualname__}"
        try:
            _NODES.get(kind, _as_named_tuple)(kind, name)
        except ValueError:  # by somebody else, or in an earlier call
            continue
        names.append(name)
    return names


def _kinds(tree: Any) -> dict[type, None]:
    """The classes of a tree's nodes that have to be registered, in their order."""
    found: dict[type, None] = {}

    def enter(node: Any) -> bool:
        kind = type(node)
        if kind in _NODES or (isinstance(node, tuple) and hasattr(node, "_fields")):
            found[kind] = None
        return False

    jax.tree.leaves(tree, is_leaf=enter)
    return found


def _as_named_tuple(kind: type, name: str) -> None:
    export.register_namedtuple_serialization(kind, serialized_name=name)


def _node(write: Callable[[Any], Any], read: Any) -> Callable[[type, str], None]:
    """Registers a node by what it keeps, as JSON, and how it is put together."""

    def register(kind: type, name: str) -> None:
        export.register_pytree_node_serialization(
            kind,
            serialized_name=name,
            serialize_auxdata=lambda kept: json.dumps(write(kept)).encode(),
            deserialize_auxdata=lambda text: parsed(bytes(text)),
            from_children=read,
        )

    return register


_NODES: dict[type, Callable[[type, str], None]] = {
    Layout: _node(
        lambda layout: list(layout.lines),
        lambda lines, _: Layout(dict.fromkeys(lines)),
    ),
    Clock: _node(
        list,
        lambda kept, counts: Clock(counts[0], tuple(kept[0]), *kept[1:]),
    ),
    OfLeaves: _node(lambda _: None, lambda _, entries: OfLeaves(entries)),
}

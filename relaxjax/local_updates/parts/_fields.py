"""Fields of an optimizer's state by their names, such as `mu` and `nu` of Adam's.

A state is any tree of NamedTuples and dataclasses; its arrays lie under the names of
their fields, and below these under the keys of the params.
"""

from collections.abc import Collection, Iterator
from typing import Any

import jax
import jax.numpy as jnp


def fields_of_floats(state: Any, params: Any) -> list[str]:
    """Names of the innermost fields of optimizers all of whose arrays are floats."""
    kinds: dict[str, list[bool]] = {}
    for fields, _, leaf in _in_fields(state, params):
        if fields:
            is_float = jnp.issubdtype(leaf.dtype, jnp.inexact)
            kinds.setdefault(fields[-1], []).append(is_float)
    return sorted(name for name, floats in kinds.items() if all(floats))


def named_fields(state: Any, names: Collection[str], params: Any) -> dict[str, Any]:
    """The arrays of each named field, by their paths; the outermost name counts."""
    found: dict[str, dict[str, Any]] = {n: {} for n in sorted(names)}
    for fields, place, leaf in _in_fields(state, params):
        name = next((name for name in fields if name in found), None)
        if name is not None:
            found[name][place] = leaf
    return found


def _in_fields(state: Any, params: Any) -> Iterator[tuple[list[str], str, Any]]:
    """The optimizer's fields around each array of its state; the path; the array.

    Fields inside the params, such as those of an Equinox module, are left out.
    """
    ends = {_keys(path) for path, _ in jax.tree.leaves_with_path(params)}
    for path, leaf in jax.tree.leaves_with_path(state):
        keys = _keys(path)
        names = [getattr(k, "name", None) for k in keys]
        ways = [i for i in range(len(keys)) if keys[i:] in ends and any(names[:i])]
        fields = [x for x in names[: min(ways, default=None)] if x is not None]
        yield fields, _place(path), leaf


def with_fields(state: Any, fields: dict[str, dict[str, Any]]) -> Any:
    """The state with these arrays."""
    new = {path: leaf for leaves in fields.values() for path, leaf in leaves.items()}
    return jax.tree.map_with_path(lambda path, leaf: new.get(_place(path), leaf), state)


def _place(path: Any) -> str:
    return jax.tree_util.keystr(_keys(path))


def _keys(path: Any) -> tuple[Any, ...]:
    """The path of a leaf, also where flax.nnx has wrapped the arrays of a state."""
    wrapper = jax.tree_util.GetAttrKey("value")
    return tuple(key for key in path if key != wrapper)


def require_field(caller: str, name: str, leaves: dict[str, Any], state: Any) -> None:
    """Refuses a field that is not there, or that is not of floats."""
    if not leaves:
        paths = [path for path, _ in jax.tree.leaves_with_path(state)]
        keys = {k for path in paths for k in path}
        names = {k.name for k in keys if isinstance(k, jax.tree_util.GetAttrKey)}
        raise ValueError(
            f"{caller}: periods has {name!r}, which is not a field of a state of "
            f"inner; its fields are {', '.join(sorted(names)) or 'none'}"
        )
    for path, leaf in leaves.items():
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            raise ValueError(
                f"{caller}: periods has {name!r}, and {path} is {leaf.dtype}: only "
                "floats have a mean; leave it out, and it stays each worker's own"
            )

"""From a user's function to transfers and operations, by tracing it once.

The function is traced to a jaxpr (`jax.make_jaxpr`: nothing is computed). Its
equations become operations (`_jaxpr`); what no output needs is dropped.

Cost: one trace, then that of the walk.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from relaxjax._core._arrays import shapes_of
from relaxjax._core._tree import leaf_name, natural_key
from relaxjax.schedule.graphs._flops import nbytes
from relaxjax.schedule.graphs._jaxpr import Needs, Tape, walk
from relaxjax.schedule.graphs._oracle import Estimate, Oracle


class Traced(NamedTuple):
    """What a function needs, computes and pushes.

    Attributes:
      nbytes: bytes of each parameter.
      ops: seconds and needs of each operation, in program order.
      pushes: for each gradient that is pushed, what it needs.
      attributed: share of the seconds that rest on a rule or a measurement.
    """

    nbytes: Mapping[str, int]
    ops: Mapping[str, tuple[float, Needs]]
    pushes: Mapping[str, Needs]
    attributed: float


def trace(
    fn: Callable[..., Any],
    params: Any,
    args: Sequence[Any],
    pushes: Callable[[Any], Any] | None,
    oracle: Oracle,
) -> Traced:
    """Transfers and operations of `fn(params, *args)`."""
    leaves = leaves_by_name(shapes_of(params))
    if not leaves:
        raise ValueError(
            "params has no leaves, so there is nothing to transfer: pass the model's "
            "parameters as the first argument"
        )
    closed, shape = jax.make_jaxpr(fn, return_shape=True)(params, *args)
    tape = Tape(oracle, reserved=leaves)
    inputs = [(name,) for name in leaves]
    inputs += [()] * (len(closed.jaxpr.invars) - len(leaves))
    outputs = walk(closed.jaxpr, inputs, tape, "")
    ops = _reachable(tape.ops, outputs)
    used = {need for _, needs in ops.values() for need in needs}
    used |= {need for needs in outputs for need in needs}
    if not used & set(leaves):
        raise ValueError(
            f"the function uses none of its parameters {list(leaves)[:5]}: they must "
            "be its first argument"
        )
    total = sum(seconds for seconds, _ in ops.values())
    known = sum(tape.attributed[name] for name in ops)
    return Traced(
        {name: nbytes(leaf) for name, leaf in leaves.items()},
        ops,
        _pushes(pushes, shape, outputs, leaves) if pushes else {},
        known / total if total else 1.0,
    )


def backward_order(
    loss_fn: Callable[..., Any], params: Any, *batch: Any, has_aux: bool = False
) -> list[str]:
    """Leaf names in the order in which their gradients appear in the backward pass.

    A reducer that sends in this order can start with the first gradient while the
    others are still being computed. Gradients that appear together, as those of a scan
    over layers, come in the reverse of their names' natural order.

    Args:
      loss_fn: the loss, called as `loss_fn(params, *batch)`; returns a scalar.
      params: a pytree.
      *batch: the other arguments; arrays or their `jax.ShapeDtypeStruct`.
      has_aux: whether `loss_fn` returns (loss, something else), as in `jax.grad`.

    Returns:
      Every leaf name once.

    Raises:
      ValueError: no parameters.

    Example:
      >>> import jax.numpy as jnp
      >>> params = {"first": jnp.ones((2, 2)), "second": jnp.ones((2, 2))}
      >>> def loss_fn(params, x):
      ...     return jnp.sum(jnp.tanh(x @ params["first"]) @ params["second"])
      >>> backward_order(loss_fn, params, jnp.ones((1, 2)))
      ['second', 'first']
    """
    gradient = jax.grad(loss_fn, has_aux=has_aux)

    def gradients(params: Any, *batch: Any) -> Any:
        return gradient(params, *batch)[0] if has_aux else gradient(params, *batch)

    traced = trace(gradients, params, batch, lambda g: g, lambda *_: Estimate(0.0, 0.0))
    place = {op: i for i, op in enumerate(traced.ops)}

    def ready(name: str) -> int:
        return max((place.get(need, -1) for need in traced.pushes[name]), default=-1)

    return sorted(sorted(traced.pushes, key=natural_key, reverse=True), key=ready)


def leaves_by_name(params: Any) -> dict[str, Any]:
    """Leaves of a pytree by name: the path to each, its parts joined by "/".

    Example:
      >>> leaves_by_name({"dense": {"bias": 1.0, "kernel": 2.0}})
      {'dense/bias': 1.0, 'dense/kernel': 2.0}
    """
    leaves: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name = leaf_name(path)
        if name in leaves:
            raise ValueError(
                f"two leaves of params are called {name!r}, as a key holds a '/' or "
                "looks like another of another type: rename one of the keys"
            )
        leaves[name] = leaf
    return leaves


def _reachable(
    ops: Mapping[str, tuple[float, Needs]], outputs: Sequence[Needs]
) -> dict[str, tuple[float, Needs]]:
    """The operations that some output needs."""
    wanted = {need for needs in outputs for need in needs}
    for name in reversed(list(ops)):
        if name in wanted:
            wanted.update(ops[name][1])
    return {name: op for name, op in ops.items() if name in wanted}


def _pushes(
    pick: Callable[[Any], Any],
    shape: Any,
    outputs: Sequence[Needs],
    leaves: Mapping[str, Any],
) -> dict[str, Needs]:
    numbered = jax.tree.unflatten(jax.tree.structure(shape), range(len(outputs)))
    picked = leaves_by_name(pick(numbered))
    if set(picked) != set(leaves):
        raise ValueError(
            "pushes must pick gradients with the names of the parameters "
            f"{sorted(leaves)}, got {sorted(picked)}"
        )
    return {name: outputs[picked[name]] for name in leaves}

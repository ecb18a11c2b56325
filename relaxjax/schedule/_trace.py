"""From a user's function to transfers and operations, by tracing it once.

The function is traced to a jaxpr (`jax.make_jaxpr`: nothing is computed). Each equation
becomes an operation; changes of view (reshape, broadcast) are free and pass their needs
on. Functions inside functions (jit, custom derivatives, remat, shard_map) are walked as
if written out. The scalar function of a reduction or a scatter belongs to its equation.

    scan     the first iteration is written out, as its operations can start before all
             parameters have come; the others are one operation that needs all of it
    cond     costs its most expensive branch
    while    is charged one iteration and counts as not attributed, since nobody knows
             how many there will be

What no output needs is dropped.

Cost: one trace, then O(equations), times the depth of nested scans.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var

from relaxjax._core._checks import check_type
from relaxjax._core._tree import leaf_name, natural_key
from relaxjax.schedule._flops import FREE, SCALAR_FUNCTION, nbytes
from relaxjax.schedule._oracle import Estimate, Oracle

Needs = tuple[str, ...]


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
    leaves = leaves_by_name(jax.eval_shape(lambda p: p, params))
    if not leaves:
        raise ValueError(
            "params has no leaves, so there is nothing to transfer: pass the model's "
            "parameters as the first argument"
        )
    closed, shape = jax.make_jaxpr(fn, return_shape=True)(params, *args)
    tape = _Tape(oracle, reserved=leaves)
    inputs = [(name,) for name in leaves]
    inputs += [()] * (len(closed.jaxpr.invars) - len(leaves))
    outputs = _walk(closed.jaxpr, inputs, tape, "")
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


@dataclass
class _Tape:
    """The operations recorded so far, in program order.

    Attributes:
      oracle: gives the time of each equation.
      reserved: names of parameters, which no operation may bear.
      ops: seconds and needs by name.
      attributed: by name, the seconds that rest on a rule or a measurement.
      counts: how often each base name was asked for.
    """

    oracle: Oracle
    reserved: Collection[str]
    ops: dict[str, tuple[float, Needs]] = field(default_factory=dict)
    attributed: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def name(self, scope: str, primitive: str) -> str:
        """A fresh name for an operation in a scope."""
        base = "/".join(part for part in (scope, primitive) if part)
        count = self.counts.get(base, 0) + 1
        while (name := base if count == 1 else f"{base}.{count}") in self.reserved:
            count += 1
        self.counts[base] = count
        return name

    def add(self, name: str, estimate: Estimate, needs: Needs) -> Needs:
        """Records an operation and returns what its users need: itself."""
        check_type("the oracle's answer", estimate, Estimate, "return Estimate(s, s)")
        self.ops[name] = (estimate.seconds, needs)
        self.attributed[name] = estimate.attributed
        return (name,)


def _walk(
    jaxpr: Jaxpr, inputs: Sequence[Needs], tape: _Tape, scope: str
) -> list[Needs]:
    """Records the equations on the tape; from each input's needs to each output's."""
    env: dict[Var, Needs] = dict(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Var | Literal) -> Needs:  # constants need nothing
        return () if isinstance(atom, Literal) else env.get(atom, ())

    for eqn in jaxpr.eqns:
        results = _record(eqn, [read(v) for v in eqn.invars], tape, scope)
        env.update(zip(eqn.outvars, results, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _record(
    eqn: JaxprEqn, inputs: Sequence[Needs], tape: _Tape, scope: str
) -> Sequence[Needs]:
    """Records one equation and returns what each of its results needs."""
    stack = str(eqn.source_info.name_stack)
    scope = "/".join(part for part in (scope, stack) if part)
    primitive = eqn.primitive.name
    if primitive in FREE:
        return [_union(inputs)] * len(eqn.outvars)
    if primitive == "scan":
        return _scan(eqn, inputs, tape, scope)
    inner = _inner(eqn)
    if len(inner) == 1 and len(inner[0].invars) == len(inputs) and primitive != "while":
        return _walk(inner[0], inputs, tape, scope)
    name = tape.name(scope, primitive)
    needs = tape.add(name, _estimate(name, eqn, tape.oracle), _union(inputs))
    return [needs] * len(eqn.outvars)


def _scan(
    eqn: JaxprEqn, inputs: Sequence[Needs], tape: _Tape, scope: str
) -> Sequence[Needs]:
    (body,) = _inner(eqn)
    others = eqn.params["length"] - 1
    if others < 0:  # nothing runs: the carry comes out as it went in
        return [_union(inputs)] * len(eqn.outvars)
    first = _walk(body, inputs, tape, scope)
    if not others:
        return first
    name = tape.name(scope, "scan")
    rest = _sum([_total(body, name, tape.oracle)], times=others)
    needs = tape.add(name, rest, _union([*first, *inputs]))
    return [needs] * len(eqn.outvars)


def _estimate(name: str, eqn: JaxprEqn, oracle: Oracle) -> Estimate:
    """Time of one equation, including everything inside it."""
    inner = [_total(jaxpr, name, oracle) for jaxpr in _inner(eqn)]
    if not inner:
        return oracle(name, eqn)
    if eqn.primitive.name == "cond":
        return max(inner)
    if eqn.primitive.name == "while":
        return Estimate(sum(e.seconds for e in inner), 0.0)
    return _sum(inner, eqn.params["length"] if eqn.primitive.name == "scan" else 1)


def _total(jaxpr: Jaxpr, name: str, oracle: Oracle) -> Estimate:
    """Time of all equations of a jaxpr, one after the other."""
    costly = [eqn for eqn in jaxpr.eqns if eqn.primitive.name not in FREE]
    return _sum([_estimate(f"{name}/{e.primitive.name}", e, oracle) for e in costly])


def _sum(parts: list[Estimate], times: int = 1) -> Estimate:
    seconds = times * sum(part.seconds for part in parts)
    return Estimate(seconds, times * sum(part.attributed for part in parts))


def _inner(eqn: JaxprEqn) -> list[Jaxpr]:
    """Functions among the equation's parameters, except functions of scalars."""
    if eqn.primitive.name.startswith(SCALAR_FUNCTION):
        return []
    items = [
        item
        for value in eqn.params.values()
        for item in (value if isinstance(value, tuple | list) else (value,))
    ]
    return [
        item.jaxpr if isinstance(item, ClosedJaxpr) else item
        for item in items
        if isinstance(item, ClosedJaxpr | Jaxpr)
    ]


def _union(inputs: Sequence[Needs]) -> Needs:
    return tuple(dict.fromkeys(need for needs in inputs for need in needs))

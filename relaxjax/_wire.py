"""Bytes on the wire, read from the traced update: nothing is registered, all is seen.

The program of `tx.update` is walked equation by equation, through chains, masks,
wrappers and loops. Integers that are known (counters, starting from `tx.init`) are
computed along the way, so that of a conditional on a counter only the branch taken
counts; where a branch depends on data, the larger counts.

Per device, with n workers on the axis and operands of d elements:

    psum, pmax, pmin   2 (n - 1) ceil(d / n) itemsize, per operand (ring all-reduce)
    all_gather         (n - 1) d itemsize
    reduce_scatter     (n - 1) ceil(d / n) itemsize
    all_to_all         (n - 1) d / n itemsize
    pbroadcast         d itemsize (each passes it on)
    ppermute           d itemsize on each sender; a message to oneself is free
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.extend import core

from relaxjax._axis import AxisName, as_on_devices
from relaxjax._dtypes import is_key
from relaxjax._mesh import workers_of

# Larger known values are not computed: counters and small tables are what branches
# depend on.
_LARGEST_KNOWN = 4096


def wire_bytes(
    tx: optax.GradientTransformation,
    params: Any,
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
    steps: int = 1,
    start: int = 0,
) -> int:
    """Bytes that the busiest device sends in some steps of `tx.update`.

    Args:
      tx: a gradient transformation.
      params: a pytree of arrays or `jax.ShapeDtypeStruct`, as for one device.
      mesh: a mesh, or `relaxjax.emulate(...)` (counted as if it were a mesh).
      axis_name: the data-parallel axes; None means all axes of the mesh.
      steps: number of successive steps that are counted.
      start: number of steps that go before.

    Returns:
      Bytes in all counted steps together.

    Raises:
      ValueError: `steps < 1` or `start < 0`; a collective in a loop of unknown length.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> params = {"w": jax.ShapeDtypeStruct((10,), jnp.float32)}
      >>> relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, relaxjax.emulate(4))
      72
    """
    if steps < 1 or start < 0:
        raise ValueError(
            f"wire_bytes: steps={steps} must be 1 or more and start={start} 0 or more"
        )
    workers = workers_of(mesh, axis_name, "wire_bytes")
    sizes = {name: workers.mesh.shape[name] for name in workers.axis_name}
    spec = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(jax.typeof(x).shape, jax.typeof(x).dtype), params
    )
    axes = list(sizes.items())

    def next_state(updates, state, params):
        return tx.update(updates, state, params)[1]

    with as_on_devices(workers.mesh.shape, workers.axis_name):
        first, state = jax.make_jaxpr(tx.init, axis_env=axes, return_shape=True)(spec)
        update = jax.make_jaxpr(next_state, axis_env=axes)(spec, state, spec)
    place = _Place(sizes, {}, {})
    known = _walk(first, [None] * len(first.in_avals), place).known
    unknown = [None] * len(jax.tree.leaves(spec))
    total = np.zeros(tuple(sizes.values()), np.int64)
    for step in range(start + steps):
        walked = _walk(update, [*unknown, *known, *unknown], place)
        known = walked.known
        if step >= start:
            total += walked.sent
    return int(total.max())


class _Walked(NamedTuple):
    sent: np.ndarray  # int64, bytes per device, shaped like the mesh
    known: list[Any]  # values of the outputs, None where unknown


class _Place(NamedTuple):
    sizes: dict[str, int]  # the workers' axes
    walks: dict[core.Jaxpr, _Walked]  # walked already, nothing known or wanted
    choices: dict[core.Jaxpr, bool]  # whether a program has a conditional

    def nothing(self) -> np.ndarray:
        return np.zeros(tuple(self.sizes.values()), np.int64)


def _walk(
    closed: core.ClosedJaxpr, known: list[Any], place: _Place, wanted: bool = True
) -> _Walked:
    """Bytes sent by a program; if `wanted`, those of its outputs that can be computed.

    Only what a conditional or a wanted output looks at is computed.
    """
    jaxpr = closed.jaxpr
    blind = not wanted and all(value is None for value in known)
    if blind and jaxpr in place.walks:
        return place.walks[jaxpr]
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    values |= dict(zip(jaxpr.invars, known, strict=True))
    sent = place.nothing()

    def read(var):
        return var.val if isinstance(var, core.Literal) else values.get(var)

    for eqn, needed in zip(jaxpr.eqns, _needed(jaxpr, place, wanted), strict=True):
        inputs = [read(var) if needed else None for var in eqn.invars]
        walked = _equation(eqn, inputs, place, needed)
        sent = sent + walked.sent
        values |= dict(zip(eqn.outvars, walked.known, strict=True))
    result = _Walked(sent, [read(var) for var in jaxpr.outvars])
    if blind:
        place.walks[jaxpr] = result
    return result


def _needed(jaxpr: core.Jaxpr, place: _Place, wanted: bool) -> list[bool]:
    """For each equation, whether a conditional or a wanted output looks at it."""
    outputs = jaxpr.outvars if wanted else ()
    looked_at = {var for var in outputs if not isinstance(var, core.Literal)}
    needed = []
    for eqn in reversed(jaxpr.eqns):
        needed.append(_chooses(eqn, place) or not looked_at.isdisjoint(eqn.outvars))
        if needed[-1]:
            looked_at |= {v for v in eqn.invars if not isinstance(v, core.Literal)}
    return needed[::-1]


def _chooses(eqn: core.JaxprEqn, place: _Place) -> bool:
    """Whether an equation is a conditional, or has one in a program of its own."""

    def inside(jaxpr: core.Jaxpr) -> bool:
        if jaxpr not in place.choices:
            place.choices[jaxpr] = any(_chooses(e, place) for e in jaxpr.eqns)
        return place.choices[jaxpr]

    programs = _programs(eqn.params)
    return eqn.primitive.name == "cond" or any(inside(p.jaxpr) for p in programs)


def _equation(
    eqn: core.JaxprEqn, known: list[Any], place: _Place, needed: bool
) -> _Walked:
    name, none = eqn.primitive.name, [None] * len(eqn.outvars)
    inner = list(_programs(eqn.params))
    if name in _COLLECTIVES:
        return _Walked(_COLLECTIVES[name](eqn, place.sizes), none)
    if name == "cond":
        return _conditional(eqn.params["branches"], known, place)
    if name == "scan":
        consts = known[: _scan_consts(eqn, inner[0])]
        turn = [*consts, *[None] * (len(known) - len(consts))]
        sent = _walk(inner[0], turn, place, wanted=False).sent
        return _Walked(sent * eqn.params["length"], none)
    if len(inner) == 1 and len(inner[0].in_avals) == len(known):  # jit, remat, ...
        return _walk(inner[0], known, place, needed)
    if inner:
        walks = [_walk(j, [None] * len(j.in_avals), place, False) for j in inner]
        sent = sum((walked.sent for walked in walks), place.nothing())
        if name == "while" and sent.any():
            raise ValueError(
                "wire_bytes: a collective in a loop whose number of turns is not known "
                "when it is traced; use lax.scan or lax.fori_loop with fixed bounds"
            )
        return _Walked(sent, none)
    return _Walked(place.nothing(), (needed and _compute(eqn, known)) or none)


def _scan_consts(eqn: core.JaxprEqn, body: core.ClosedJaxpr) -> int:
    """Number of a scan's operands that are the same in each turn.

    The operands are constants, carry and slices, the results carry and slices; slices
    lose an axis in the body.
    """
    ins = zip(eqn.invars, body.jaxpr.invars, strict=True)
    outs = zip(eqn.outvars, body.jaxpr.outvars, strict=True)
    whole_ins, whole_outs = (
        sum(len(_shape(a).shape) == len(_shape(b).shape) for a, b in pairs)
        for pairs in (ins, outs)
    )
    return whole_ins - whole_outs


def _conditional(
    branches: Sequence[core.ClosedJaxpr], known: list[Any], place: _Place
) -> _Walked:
    """The branch taken, or where that is unknown the most that any device sends."""
    index, *operands = known
    if index is not None:
        taken = branches[int(np.clip(int(index), 0, len(branches) - 1))]
        return _walk(taken, operands, place)
    walks = [_walk(branch, operands, place) for branch in branches]
    sent = np.max([walked.sent for walked in walks], axis=0)
    return _Walked(sent, [None] * len(walks[0].known))


def _compute(eqn: core.JaxprEqn, known: list[Any]) -> list[Any] | None:
    """The outputs of a primitive all of whose inputs are known, if they are small."""
    if any(value is None for value in known) or eqn.primitive.name == "axis_index":
        return None
    if sum(_shape(var).size for var in eqn.outvars) > _LARGEST_KNOWN:
        return None
    out = eqn.primitive.bind(*map(_without_mesh, known), **eqn.params)
    return list(out) if eqn.primitive.multiple_results else [out]


def _without_mesh(value: Any) -> Any:
    """A value as it is outside a mapping: constants remember where they were traced."""
    if isinstance(value, jax.Array) and not is_key(value):
        return np.asarray(value)
    return value


def _programs(params: dict[str, Any]) -> Iterator[core.ClosedJaxpr]:
    for value in params.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, core.ClosedJaxpr):
                yield item
            elif isinstance(item, core.Jaxpr):
                yield core.ClosedJaxpr(item, ())


def _on_all(share: Callable[[int, int], int]) -> Callable[..., np.ndarray]:
    """A collective in which every device sends `share(n, d)` elements per operand."""

    def count(eqn: core.JaxprEqn, sizes: dict[str, int]) -> np.ndarray:
        n = math.prod(sizes[name] for name in _names(eqn))
        operands = [_shape(var) for var in eqn.invars]
        sent = sum(share(n, x.size) * x.dtype.itemsize for x in operands)
        return np.full(tuple(sizes.values()), sent, np.int64)

    return count


def _permute(eqn: core.JaxprEqn, sizes: dict[str, int]) -> np.ndarray:
    """`ppermute`: each sender, counted along the axes of the permutation."""
    names, axes = _names(eqn), list(sizes)
    positions = np.indices(tuple(sizes.values()))
    place = np.zeros(tuple(sizes.values()), np.int64)
    for name in names:
        place = place * sizes[name] + positions[axes.index(name)]
    senders = [source for source, target in eqn.params["perm"] if source != target]
    block = _shape(eqn.invars[0])
    return np.isin(place, senders) * block.size * block.dtype.itemsize


def _shape(var: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(var.aval.shape, var.aval.dtype)


def _names(eqn: core.JaxprEqn) -> list[str]:
    value = eqn.params.get("axes", eqn.params.get("axis_name"))
    names = value if isinstance(value, tuple) else (value,)
    return [name for name in names if isinstance(name, str)]


_ring_sum = _on_all(lambda n, d: 2 * (n - 1) * -(-d // n))
_COLLECTIVES: dict[str, Callable[..., np.ndarray]] = {
    "psum": _ring_sum,
    "psum_invariant": _ring_sum,
    "pmax": _ring_sum,
    "pmin": _ring_sum,
    "all_gather": _on_all(lambda n, d: (n - 1) * d),
    "all_gather_invariant": _on_all(lambda n, d: (n - 1) * d),
    "reduce_scatter": _on_all(lambda n, d: (n - 1) * -(-d // n)),
    "all_to_all": _on_all(lambda n, d: (n - 1) * d // n),
    "pbroadcast": _on_all(lambda n, d: d if n > 1 else 0),
    "ppermute": _permute,
}

"""What every walk over a traced program needs of its equations."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import jax
from jax.extend import core

T = TypeVar("T")
_MET = re.compile(r"relaxjax-met\.([^/]+)")
CLOSED: Any = vars(core)["ClosedJaxpr"]
"""A program with its constants; of newer JAX `Jaxpr`, by a name its types leave out."""
Program = Any
"""Where it is an argument."""


def programs_of(params: dict[str, Any]) -> Iterator[Program]:
    """The programs inside an equation: its branches, its loop, its jit."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, CLOSED):
                yield item
            elif isinstance(item, core.Jaxpr):
                yield CLOSED(item, ())


def walked(
    jaxpr: core.Jaxpr,
    ins: Sequence[T],
    nothing: T,
    visit: Callable[[core.JaxprEqn, list[T], str], Sequence[T]],
    scope: str = "",
) -> list[T]:
    """What is known of a program's results, from what is known of its arguments.

    `visit` says it of an equation's results, by the equation, what is known of its
    operands, and its scopes from outside in. Of constants `nothing` is known.
    """
    env: dict[Any, T] = dict(zip(jaxpr.invars, ins, strict=True))

    def read(var: Any) -> T:
        return nothing if isinstance(var, core.Literal) else env.get(var, nothing)

    for eqn in jaxpr.eqns:
        inside = f"{scope}/{eqn.source_info.name_stack}"
        outs = visit(eqn, [read(v) for v in eqn.invars], inside)
        env.update(zip(eqn.outvars, outs, strict=True))
    return [read(v) for v in jaxpr.outvars]


def meeting_over(axis_name: str) -> Any:
    """A scope for a collective that is built of several messages.

    Its last equation may be an ordinary one: a ring ends by writing chunks into an
    array. `met_in` reads from the scope that the results are equal on all workers.
    """
    return jax.named_scope(f"relaxjax-met.{axis_name}")


@lru_cache
def met_in(scope: str) -> frozenset[str]:
    """The axes over which values are brought together in a scope."""
    return frozenset(_MET.findall(scope))


def axis_names_of(eqn: core.JaxprEqn) -> list[str]:
    """The named axes that an equation works over, such as a collective's."""
    value = eqn.params.get("axes", eqn.params.get("axis_name"))
    names = value if isinstance(value, tuple) else (value,)
    return [name for name in names if isinstance(name, str)]


def scan_parts(eqn: core.JaxprEqn) -> tuple[Program, int, int]:
    """Body of a `scan`, and how many operands are the same in each turn or carried.

    The operands are constants, carry and slices, the results carry and slices. Slices
    lose an axis in the body; newer JAX says nothing else of what is which.
    """
    (body,) = programs_of(eqn.params)

    def whole(outside: Iterable[Any], inside: Iterable[Any]) -> int:
        pairs = zip(outside, inside, strict=True)
        return sum(a.aval.ndim == b.aval.ndim for a, b in pairs)

    carried = whole(eqn.outvars, body.jaxpr.outvars)
    return body, whole(eqn.invars, body.jaxpr.invars) - carried, carried


def loop_parts(eqn: core.JaxprEqn) -> tuple[Program, Program, int, int]:
    """Condition and body of a `while`, and how many operands each has for itself."""
    of = eqn.params
    return of["cond_jaxpr"], of["body_jaxpr"], of["cond_nconsts"], of["body_nconsts"]

"""The order of transfers, read from the program that the compiler made.

Each transfer has a name there (`relaxjax.collectives.wire._transfers`): the order of
the collectives of a scheduled program is the order in which they run on CPU, and start
on GPU.

Cost: O(length of the program's text).
"""

import re
from typing import Any, NamedTuple

from relaxjax.programs import called_by, compiled_text, is_collective, parse

_SCOPE = re.compile(r'op_name="[^"]*\b(pull|push) ([^";]*);')


class CompiledOrder(NamedTuple):
    """Leaf names in the order in which a program transfers them.

    Attributes:
      pulls: leaves pulled from the servers.
      pushes: leaves pushed to the servers.
    """

    pulls: tuple[str, ...]
    pushes: tuple[str, ...]


def compiled_order(step: Any, *args: Any) -> CompiledOrder:
    """The order of pulls and pushes in the compiled program of a step.

    The step is compiled for the arguments, and not run.

    Args:
      step: a step of `relaxjax.data_parallel` or `jax.jit`, with `parameter_server` or
        `ps.pulled` in it.
      *args: its arguments, arrays or `jax.ShapeDtypeStruct`.

    Returns:
      The names of the leaves; those that travel together are in the order of the plan.

    Raises:
      TypeError: `step` is not a jitted function.
      ValueError: the workers are emulated; the program has no pulls or pushes.
    """
    return order_in(compiled_text("ps.compiled_order", step, *args))


def order_in(text: str) -> CompiledOrder:
    """The order in the text of an optimized module, which must have a transfer."""
    module = parse(text)
    transfers: dict[str, list[str]] = {"pull": [], "push": []}

    def visit(computation: str) -> None:
        for instruction in module.computations.get(computation, []):
            named = _SCOPE.search(instruction.rest)
            if named and is_collective(instruction):
                transfers[named[1]].append(named[2])
            for inner in called_by(instruction):
                visit(inner)

    visit(module.entry or "")
    if not any(transfers.values()):
        raise ValueError(
            "ps.compiled_order: the program has no pull and no push: is "
            "relaxjax.parameter_server or relaxjax.ps.pulled in the step, and is there "
            "more than one worker?"
        )
    return CompiledOrder(*map(_leaves, transfers.values()))


def _leaves(transfers: list[str]) -> tuple[str, ...]:
    """The names of leaves; a transfer of several collectives counts once."""
    return tuple(name for t in dict.fromkeys(transfers) for name in t.split(","))

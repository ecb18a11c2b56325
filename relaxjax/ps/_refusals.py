"""Which numbers of servers there cannot be, and what they cannot run."""

from collections.abc import Callable
from typing import Any

import optax

from relaxjax._core._checks import require_whole
from relaxjax._core.traced._asked import heard_updates


def number_of_servers(
    caller: str, name: str, number: int | None, workers: int, leaves: int | None
) -> int:
    """The number of servers, by default that of the workers, which it must divide.

    There must be as many leaves, or none, as in a part of `optax.partition`; None
    stands for leaves that were counted before.
    """
    if number is None:
        return workers
    if leaves and number > leaves:
        raise ValueError(
            f"{caller}: servers={number} and the params have {leaves} leaves: there "
            "must be a leaf for each server at least; give at most "
            f"servers={max(1, leaves)}, or None for one at every worker"
        )
    if workers % number:
        fitting = [k for k in range(1, workers + 1) if workers % k == 0]
        raise ValueError(
            f"{caller}: servers={number} must divide the {workers} workers of axis "
            f"{name!r}, as every worker is part of one: {', '.join(map(str, fitting))}"
        )
    return number


def check_servers(caller: str, number: Any) -> None:
    """Refuses what is not a number of servers, before any axis is known."""
    if number is not None:
        require_whole(caller, "servers", number)


def served_by(
    caller: str, optimizer: optax.GradientTransformation
) -> Callable[..., tuple[Any, Any]]:
    """The update of the servers' optimizer, which refuses relaxations in it."""
    update = optax.with_extra_args_support(optimizer).update

    def step(*args: Any, **extra_args: Any) -> tuple[Any, Any]:
        inside: list[str] = []
        with heard_updates(lambda given: inside.append(given.at.name)):
            out = update(*args, **extra_args)
        if inside:
            raise ValueError(
                f"{caller}: there is a relaxation in the optimizer, where it would "
                "bring slices of different leaves together. Servers reduce gradients "
                "themselves: leave it out, and give the servers compressor= or "
                "staleness="
            )
        return out

    return step

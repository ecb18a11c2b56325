"""Which numbers of servers there cannot be."""

from typing import Any

from relaxjax._core._checks import require_whole


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

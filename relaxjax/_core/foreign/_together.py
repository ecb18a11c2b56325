"""Processes meet before a program that one of them may have begun alone.

gloo pairs the collectives of such a program with whatever the other processes run next,
and all of them compute wrong numbers. NCCL hangs. JAX's coordination service has
barriers beside the collectives, and no public door to them (checked: 0.10, 0.12). It
counts the meetings of each name, those that failed too.

Cost: with several processes, a round trip to process 0; else nothing.
"""

from collections.abc import Iterable, Sequence

import jax
from jax._src import distributed

PATIENCE = 600.0
"""Seconds that a process waits for the others."""


def processes_of(arrays: Iterable[jax.Array]) -> list[int]:
    """The processes that hold a part of the arrays, rising."""
    devices = {device for x in arrays for device in x.sharding.device_set}
    return sorted({device.process_index for device in devices})


def meet(place: str, processes: Sequence[int], what: str) -> None:
    """Waits until all of these processes are here, by a name for the place.

    Raises:
      RuntimeError: some are not, after `PATIENCE` seconds; `what` says what they were
        to do, and a remedy.
    """
    client = distributed.global_state.client
    if client is None or len(processes) < 2:
        return
    try:
        client.wait_at_barrier(f"relaxjax/{place}", int(1000 * PATIENCE), [*processes])
    except Exception as error:  # JAX's error type has changed
        if "DEADLINE_EXCEEDED" not in str(error):
            raise  # another has died, which `hosts.Watch` tells
        raise RuntimeError(
            f"{place.partition('/')[0]}: process {jax.process_index()} has waited "
            f"{PATIENCE:g} s for all of the processes {[*processes]} to {what}"
        ) from error

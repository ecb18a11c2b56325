"""Processes meet before a program that one of them may have begun alone.

gloo pairs the collectives of such a program with whatever the other processes run next,
and all of them compute wrong numbers. NCCL hangs. JAX's coordination service has
barriers beside the collectives, and no public door to them (checked: 0.10, 0.12).

Cost: with several processes, a round trip to process 0; else nothing.
"""

from collections import Counter
from collections.abc import Iterable

import jax
from jax._src import distributed

PATIENCE = 600.0
"""Seconds that a process waits for the others."""
_MET: Counter[str] = Counter()


def meet(caller: str, arrays: Iterable[jax.Array]) -> None:
    """Waits until all processes that hold a part of the arrays are here.

    Raises:
      RuntimeError: some of them are not, after `PATIENCE` seconds.
    """
    client = distributed.global_state.client
    devices = {device for x in arrays for device in x.sharding.device_set}
    processes = sorted({device.process_index for device in devices})
    if client is None or len(processes) < 2:
        return
    place = f"relaxjax/{caller}/{'-'.join(map(str, processes))}"
    _MET[place] += 1
    try:
        client.wait_at_barrier(
            f"{place}/{_MET[place]}", int(1000 * PATIENCE), processes
        )
    except Exception as error:  # JAX's error type has changed
        if "DEADLINE_EXCEEDED" not in str(error):
            raise  # another has died, which `hosts.Watch` tells
        raise RuntimeError(
            f"{caller}: process {jax.process_index()} has waited {PATIENCE:g} s for "
            f"all of the processes {processes} to call it, as each of them holds a "
            "part of the workers. Call it on every process, and write or print on "
            "one: not under `if jax.process_index() == 0:`"
        ) from error

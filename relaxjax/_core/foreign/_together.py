"""Processes meet before a program that one of them may have begun alone.

gloo pairs the collectives of such a program with whatever the other processes run next,
and all of them compute wrong numbers. NCCL hangs. JAX's coordination service has
barriers beside the collectives, and no public door to them (checked: 0.10, 0.12). It
counts the meetings of each name, those that failed too.

Cost: with several processes, a round trip to process 0; else nothing.
"""

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np
from jax._src import distributed
from jax.experimental import multihost_utils

PATIENCE = 1800.0
"""Seconds that a process waits for the others: one may load data, or compile, first."""
NOTICE = 60.0
"""Seconds after which it says so: another may have ended, and never come."""
_CALL = (
    "call it. All processes of a job call it, and as often: not under "
    "`if jax.process_index() == 0:`, and on a mesh of devices of all of them"
)


def processes_of(arrays: Iterable[jax.Array]) -> list[int]:
    """The processes that hold a part of the arrays, rising."""
    devices = {device for x in arrays for device in x.sharding.device_set}
    return sorted({device.process_index for device in devices})


def meet(
    place: str, processes: Sequence[int], what: str, after: Sequence[jax.Array] = ()
) -> None:
    """Waits until all of these processes are here, by a name for the place.

    Before that it waits for the arrays of `after`. A step that is under way here, and
    not begun by another process, would meet that one's next collective in its place.

    Raises:
      RuntimeError: some are not, after `PATIENCE` seconds, or another has given up;
        `what` says what all were to do, and a remedy.
    """
    client = distributed.global_state.client
    if client is None or len(processes) < 2:
        return
    jax.block_until_ready([*after])
    begun, name = time.monotonic(), f"relaxjax/{place}"
    try:
        with _notice(place, [*processes], what):
            client.wait_at_barrier(name, int(1000 * PATIENCE), [*processes])
    except Exception as error:  # JAX's error type has changed
        late = "-th instance" in str(error)
        if not late and "DEADLINE_EXCEEDED" not in str(error):
            raise  # another has died, which `hosts.Watch` tells
        how = f"has waited {PATIENCE:g} s for all of the processes {[*processes]}"
        if late or time.monotonic() - begun < 0.9 * PATIENCE:
            how = f"comes when another of {[*processes]} has given up. All have"
        raise RuntimeError(
            f"{place.partition('/')[0]}: process {jax.process_index()} {how} to {what}"
        ) from error


@contextmanager
def _notice(place: str, processes: list[int], what: str) -> Iterator[None]:
    """A line on stderr where this takes longer than `NOTICE` seconds."""
    line = (
        f"relaxjax: {place.partition('/')[0]}: process {jax.process_index()} has "
        f"waited {NOTICE:g} s, of {PATIENCE:g}, for all of {processes} to {what}"
    )
    timer = threading.Timer(NOTICE, lambda: print(line, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def gathered(place: str, x: Any) -> np.ndarray:
    """A small array of every process of the job, [processes, ...], once all ask."""
    meet(place, range(jax.process_count()), _CALL)
    return np.asarray(multihost_utils.process_allgather(x))


def texts_of_all(place: str, text: str) -> list[str]:
    """The texts of all processes, in their order, once all ask."""
    if jax.process_count() == 1:  # also inside a trace
        return [text]
    raw = np.frombuffer(text.encode(), np.uint8)
    sizes = gathered(place, np.int32(raw.size))
    if not sizes.any():
        return [""] * len(sizes)
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: raw.size] = raw
    rows = np.asarray(multihost_utils.process_allgather(padded))
    return [
        row[:size].tobytes().decode() for row, size in zip(rows, sizes, strict=True)
    ]

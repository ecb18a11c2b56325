"""Who is lost or stuck, judged from what processes have let be heard of themselves.

    lost:  nothing heard from it for `lost_after` seconds
    stuck: none that is in its loop has begun a step for `stuck_after` seconds, and it
           is among those that began the fewest

Pure functions of times; `_watch` feeds them.

Cost: O(processes).
"""

from collections.abc import Mapping
from typing import NamedTuple

from relaxjax.hosts._rendezvous import Member


class Heard(NamedTuple):
    """What one process has let be heard of itself.

    Attributes:
      at: seconds on the listener's clock when its last sign came.
      step: the step that it began last; -1 before the first.
      since: seconds on the same clock when that last changed.
    """

    at: float
    step: int
    since: float


class Patience(NamedTuple):
    """How long a watch waits, in seconds.

    Attributes:
      lost_after: for a sign of a process.
      stuck_after: for a step.
    """

    lost_after: float
    stuck_after: float


class Signs:
    """Makes one's own signs, and keeps account of those that were read.

    Args:
      processes: how many there are.
    """

    def __init__(self, processes: int):
        self._processes = processes
        self._count = 0
        self._texts: dict[int, str] = {}
        self._heard: dict[int, Heard] = {}

    def own(self, step: int, flag: str) -> str:
        """The next sign of this process.

        Args:
          step: begun last.
          flag: "on", or "done" after the loop.
        """
        self._count += 1
        return f"{self._count} {step} {flag}"

    def update(self, texts: Mapping[str, str], now: float) -> dict[int, Heard]:
        """What is known now of the processes that have not left their loop.

        Args:
          texts: signs by "sign/NUMBER"; a process without one counts as heard, and as
            one that has begun no step.
          now: seconds on the listener's clock.
        """
        for i in range(self._processes):
            before = self._heard.get(i, Heard(now, -1, now))
            text = texts.get(f"sign/{i}")
            step = before.step if text is None else int(text.split()[1])
            came = text is None or text != self._texts.get(i)
            since = before.since if step == before.step else now
            self._heard[i] = Heard(now if came else before.at, step, since)
            self._texts[i] = text or ""
        gone = {i for i, text in self._texts.items() if text.endswith("done")}
        return {i: h for i, h in self._heard.items() if i not in gone}


def verdict(
    now: float,
    heard: Mapping[int, Heard],
    members: tuple[Member, ...],
    patience: Patience,
) -> str | None:
    """What is wrong, in words; None if nothing.

    Args:
      now: seconds on the listener's clock.
      heard: of each process that is in its loop, by number.
      members: all processes.
      patience: of the watch.
    """
    lost = [i for i, h in heard.items() if now - h.at > patience.lost_after]
    if lost:
        return "; ".join(
            f"{members[i]} is lost: nothing was heard from it for "
            f"{patience.lost_after:g} s; {_last(heard[i].step)}"
            for i in sorted(lost)
        )
    if not heard or now - max(h.since for h in heard.values()) <= patience.stuck_after:
        return None
    least = min(h.step for h in heard.values())
    behind = sorted(i for i, h in heard.items() if h.step == least)
    if len(behind) == len(heard) > 1:
        return (
            f"all processes are stuck: they live, but none has begun a step for "
            f"{patience.stuck_after:g} s; {_last(least)}"
        )
    return "; ".join(
        f"{members[i]} is stuck: it lives, but has begun no step for "
        f"{patience.stuck_after:g} s; {_last(least)}"
        for i in behind
    )


def _last(step: int) -> str:
    return "no step had begun" if step < 0 else f"the last step heard of was {step}"

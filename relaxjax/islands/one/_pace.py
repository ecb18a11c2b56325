"""A pace: so many steps a second and no more, whoever leaves the processor idle."""

import time
from collections.abc import Callable


class Pace:
    """Waits at the end of each step until the next one is due.

    With r steps a second, step k + 1 is due 1 / r after step k was. Of a delay, such as
    a pause of the process, at most one step is made up for.
    """

    def __init__(
        self,
        per_second: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        """Begins now.

        Args:
          per_second: r, above 0; None never waits.
          clock: seconds.
          sleep: waits for seconds.

        Raises:
          ValueError: `per_second` is not above 0.
        """
        if per_second is not None and not 0 < per_second < float("inf"):
            raise ValueError(
                f"islands: pace={per_second} must be steps per second, above 0, or "
                "None for as many as the island can"
            )
        self._every = None if per_second is None else 1 / per_second
        self._clock, self._sleep = clock, sleep
        self._due = clock()

    def keep(self) -> None:
        """Ends a step: waits for its time."""
        if self._every is None:
            return
        now = self._clock()
        self._due = max(self._due + self._every, now - self._every)
        if self._due > now:
            self._sleep(self._due - now)

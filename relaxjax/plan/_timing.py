"""Seconds of a call, and of what is done inside a program: medians, each waited for.

of one    (seconds of 1 + 4 in a row - seconds of one) / 4
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

_ROW = 4  # in one program
_LEAST = 1e-9  # seconds, of one


def step_seconds(
    step: Callable[..., Any], *args: Any, steps: int = 5, rounds: int = 5
) -> float:
    """Seconds of a call, each waited for; the first, which compiles, does not count.

    Args:
      step: a function of arrays, compiled; it must not donate.
      *args: its arguments.
      steps: calls of a round.
      rounds: of which the median counts.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax import plan
      >>> plan.step_seconds(jax.jit(jnp.sum), jnp.ones(10)) > 0
      True
    """
    jax.block_until_ready(step(*args))
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(steps):
            jax.block_until_ready(step(*args))
        found.append((time.perf_counter() - start) / steps)
    return _agreed(statistics.median(found))


class Repeated(NamedTuple):
    """Times what is done several times in a row inside one program.

    Attributes:
      mesh: of the workers.
      rounds: how often each program is timed; the median counts.
    """

    mesh: Any
    rounds: int

    def seconds(
        self, once: Callable[[jax.Array], jax.Array], name: str, nbytes: int
    ) -> float:
        """Of one, without what the program takes besides.

        Args:
          once: from float32[n] to the same, on each worker.
          name: of the axis.
          nbytes: of the array of a worker.
        """
        shape = (self.mesh.shape[name], max(1, nbytes // 4))
        x = jax.device_put(
            np.ones(shape, np.float32), NamedSharding(self.mesh, P(name))
        )

        def program(times: int) -> Callable[[jax.Array], jax.Array]:
            def run(x: jax.Array) -> jax.Array:
                for _ in range(times):
                    x = once(x)
                return x + 1

            mapped = jax.shard_map(
                run,
                mesh=self.mesh,
                in_specs=P(name),
                out_specs=P(name),
                check_vma=False,
            )
            return jax.jit(mapped)

        one, many = (
            step_seconds(program(times), x, steps=3, rounds=self.rounds)
            for times in (1, 1 + _ROW)
        )
        return max((many - one) / _ROW, _LEAST)


def _agreed(seconds: float) -> float:
    """What process 0 says, so that all choose alike."""
    if jax.process_count() == 1:
        return seconds
    return float(multihost_utils.broadcast_one_to_all(np.float32(seconds)))

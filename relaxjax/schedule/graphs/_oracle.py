"""Time oracles: how long one equation of the user's function takes.

An oracle takes the name of an operation and its jaxpr equation, and returns an
`Estimate`. There are three here: from rates and shapes, from a stopwatch, and from a
table. Any other function with that signature will do.

Source of the stopwatch's rule, the minimum over runs: Hashemi et al., "TicTac",
MLSys 2019.
"""

import timeit
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import JaxprEqn

from relaxjax._core.foreign._fields import check_count, check_seconds
from relaxjax.schedule.graphs._flops import flops, memory_traffic
from relaxjax.schedule.graphs._hardware import ACCELERATOR, Device


class Estimate(NamedTuple):
    """Seconds of an operation, and how many of them rest on a rule or a measurement.

    Attributes:
      seconds: the estimate.
      attributed: the part of these seconds that is more than a guess.
    """

    seconds: float
    attributed: float


Oracle = Callable[[str, JaxprEqn], Estimate]
"""From the name of an operation and its equation to an estimate of its time."""


def analytic(device: Device = ACCELERATOR) -> Oracle:
    """Times from shapes: the slower of arithmetic and memory traffic.

    An equation without a rule is charged its memory traffic and counts as not
    attributed.

    Args:
      device: what the device computes and moves per second.

    Example:
      >>> oracle = analytic(Device(flops=1e12))
    """

    def oracle(name: str, eqn: JaxprEqn) -> Estimate:
        del name
        work = flops(eqn)
        seconds = device.seconds(flops=work or 0.0, nbytes=memory_traffic(eqn))
        return Estimate(seconds, 0.0 if work is None else seconds)

    return oracle


def measured(*, repeats: int = 5, device: Device = ACCELERATOR) -> Oracle:
    """Times from a stopwatch: each distinct equation compiled and run by itself.

    The minimum over the runs is taken, the call's own overhead included. Equations
    with side effects, or on random keys, cannot be run alone: they are estimated from
    shapes and count as not attributed.

    Args:
      repeats: number of timed runs, after one that compiles.
      device: rates for the equations that cannot be run.

    Returns:
      An oracle, which remembers what it has measured.

    Raises:
      ValueError: fewer than one run.

    Example:
      >>> oracle = measured(repeats=3)
    """
    check_count("repeats", repeats)
    shapes_only = analytic(device)
    measurements: dict[tuple[str, str], float] = {}

    def oracle(name: str, eqn: JaxprEqn) -> Estimate:
        if eqn.effects or not all(_is_plain(v.aval) for v in eqn.invars):
            return Estimate(shapes_only(name, eqn).seconds, 0.0)
        key = (eqn.primitive.name, f"{[v.aval for v in eqn.invars]} {eqn.params}")
        if key not in measurements:
            measurements[key] = _stopwatch(eqn, repeats)
        return Estimate(measurements[key], measurements[key])

    return oracle


def given(times: Mapping[str, float], *, otherwise: Oracle | None = None) -> Oracle:
    """Times from a table, such as a profile of an earlier run.

    Args:
      times: seconds by the name of an operation, or of a primitive.
      otherwise: the oracle that is asked for the rest.

    Returns:
      An oracle; it raises a ValueError for an operation that is in neither.

    Raises:
      TypeError: a time that is not a number.
      ValueError: a missing, negative or infinite time.

    Example:
      >>> oracle = given({"dot_general": 2e-3}, otherwise=analytic())
    """
    known = {name: check_seconds(f"times[{name!r}]", t) for name, t in times.items()}

    def oracle(name: str, eqn: JaxprEqn) -> Estimate:
        seconds = known.get(name, known.get(eqn.primitive.name))
        if seconds is not None:
            return Estimate(seconds, seconds)
        if otherwise is None:
            raise ValueError(
                f"times has no entry for operation {name!r} (nor for the primitive "
                f"{eqn.primitive.name!r}): add one, or pass otherwise=analytic()"
            )
        return otherwise(name, eqn)

    return oracle


def _is_plain(aval: Any) -> bool:
    dtype = getattr(aval, "dtype", None)
    return dtype is not None and not jnp.issubdtype(dtype, jax.dtypes.extended)


def _stopwatch(eqn: JaxprEqn, repeats: int) -> float:
    avals: list[Any] = [v.aval for v in eqn.invars]
    arrays = [jnp.ones(aval.shape, aval.dtype) for aval in avals]
    run = jax.jit(lambda *xs: eqn.primitive.bind(*xs, **eqn.params))

    def call() -> None:
        jax.block_until_ready(run(*arrays))

    call()  # compiles
    return min(timeit.repeat(call, number=1, repeat=repeats))

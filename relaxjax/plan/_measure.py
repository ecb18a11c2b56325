"""The links of a mesh, the codecs of a device, and the computation of a step, measured.

    a message of b bytes to the next worker     t = hops alpha + line / beta
    an all-reduce of b bytes                    the same, with its own alpha and beta

with hops and line as `relaxjax.plan._traffic` counts them. Each is timed inside one
program that does it several times in a row,

    t = (seconds of 1 + 4 in a row - seconds of one) / 4

at several sizes, and fitted by least squares of relative errors. What a fit does not
explain is its `error`. All seconds are medians, of calls that are waited for.

Cost: a few seconds; two programs for each size and axis.
"""

import functools
import statistics
import timeit
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import AxisName
from relaxjax.compression import COMPRESSORS, roundtrip
from relaxjax.controllers import of_first_process
from relaxjax.plan._network import CODEC, INSIDE, Network
from relaxjax.plan._traffic import psum
from relaxjax.schedule import Link
from relaxjax.workers import Emulation, workers_of

SIZES = (2**12, 2**16, 2**19, 2**21)  # bytes
CODECS = ("quantize8", "quantize4", "sign", "top_k")
_ROW = 4  # operations in a row in one program
_LEAST = 1e-9  # seconds of one operation


class Fit(NamedTuple):
    """A link, as measured.

    Attributes:
      link: latency and bandwidth.
      error: mean absolute relative difference of the fit from the measurements.
      points: (bytes, seconds) of one exchange.
    """

    link: Link
    error: float
    points: tuple[tuple[int, float], ...]


class Measurement(NamedTuple):
    """What `measure` found.

    Attributes:
      network: the network, for `rank` and `auto`; `network.save(path)` keeps it.
      fits: the fits by name: "link", "psum" and, with two axes, "inside".
    """

    network: Network
    fits: dict[str, Fit]


def measure(
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
    sizes: Sequence[int] = SIZES,
    rounds: int = 5,
    codecs: Sequence[str] = CODECS,
) -> Measurement:
    """Fits links and codecs of the devices at hand.

    All processes of the mesh must call it; all get what process 0 measured.

    Args:
      mesh: a mesh with one data-parallel axis, or two: (between hosts, inside them).
      axis_name: the data-parallel axes; None means all axes of the mesh.
      sizes: sizes of messages in bytes, at least two.
      rounds: number of times that each is timed; the median counts.
      codecs: compressors that are timed, as relaxations spell them; others are taken to
        be as fast as the slowest of them.

    Raises:
      ValueError: the mesh is emulated, and has no links; there is one worker, or there
        are fewer than two sizes, or more than two axes; a compressor is unknown.
    """
    workers = workers_of(mesh, axis_name, "measure")
    names = workers.axis_name
    _check(mesh, names, workers.mesh.shape, sizes, rounds, codecs)
    counts = [workers.mesh.shape[name] for name in names]
    per_host = counts[1] if len(counts) == 2 else 1
    network = Network(workers=int(np.prod(counts)), per_host=per_host)
    outer = network if per_host == 1 else Network(workers=counts[0])

    seconds = functools.partial(_points, workers.mesh, sizes, rounds)

    def sends(name: str, per_link: int) -> Fit:
        count = workers.mesh.shape[name]
        pairs = [(i, (i + 1) % count) for i in range(count)]
        points = seconds(lambda x: lax.ppermute(x, name, pairs), name)
        return _fit(points, lambda b: (1, per_link * b))

    def sum_traffic(b: int) -> tuple[float, float]:
        one = psum(b // 4, outer)
        return one.hops, per_host * one.line

    sums = seconds(lambda x: lax.psum(x, names[0]) / counts[0], names[0])
    fits = {"link": sends(names[0], per_host), "psum": _fit(sums, sum_traffic)}
    if len(names) == 2:
        fits["inside"] = sends(names[1], 1)
    rates = {name: _codec_rate(name, rounds) for name in codecs}
    measured = Network(
        workers=network.workers,
        per_host=per_host,
        link=fits["link"].link,
        psum=fits["psum"].link,
        inside=fits["inside"].link if "inside" in fits else INSIDE,
        codec={**rates, "": min(rates.values(), default=CODEC)},
        joined=jax.default_backend() != "cpu" or jax.process_count() == 1,  # no gloo
        overlap=jax.default_backend() != "cpu",
    )
    return Measurement(measured, fits)


def step_seconds(
    step: Callable[..., Any], *args: Any, steps: int = 5, rounds: int = 5
) -> float:
    """Seconds of a call, each waited for; the first, which compiles, does not count.

    Args:
      step: a compiled function of arrays; it must not donate.
      *args: its arguments.
      steps: number of calls in a round.
      rounds: number of rounds; the median counts.

    Returns:
      Seconds, the same in all processes.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> from relaxjax import plan
      >>> plan.step_seconds(jax.jit(jnp.sum), jnp.ones(10)) > 0
      True
    """

    def call() -> None:
        jax.block_until_ready(step(*args))

    call()  # compiles
    seconds = timeit.repeat(call, number=steps, repeat=rounds)
    return of_first_process(statistics.median(seconds) / steps)


def _points(
    mesh: Any,
    sizes: Sequence[int],
    rounds: int,
    operation: Callable[[jax.Array], jax.Array],
    name: str,
) -> list[tuple[int, float]]:
    """(bytes, seconds) of an operation on a float32 array at each worker of an axis."""

    def program(times: int) -> Callable[[jax.Array], jax.Array]:
        def run(x: jax.Array) -> jax.Array:
            for _ in range(times):
                x = operation(x)
            return x + 1

        specs: dict[str, Any] = {"in_specs": P(name), "out_specs": P(name)}
        return jax.jit(jax.shard_map(run, mesh=mesh, check_vma=False, **specs))

    points = []
    for nbytes in sizes:
        ones = np.ones((mesh.shape[name], max(1, nbytes // 4)), np.float32)
        x = jax.device_put(ones, NamedSharding(mesh, P(name)))
        one, several = (
            step_seconds(program(times), x, steps=3, rounds=rounds)
            for times in (1, 1 + _ROW)
        )
        points.append((nbytes, max((several - one) / _ROW, _LEAST)))
    return points


def _fit(
    points: Sequence[tuple[int, float]], traffic: Callable[[int], tuple[float, float]]
) -> Fit:
    """Latency and bandwidth, neither below zero; `traffic` is (hops, line) of bytes."""
    rows = np.array([np.array(traffic(b), float) / t for b, t in points])
    alpha, beta = np.linalg.lstsq(rows, np.ones(len(points)), rcond=None)[0]
    if alpha < 0:
        alpha, beta = 0.0, 1 / (rows[:, 1] @ rows[:, 1]) * rows[:, 1].sum()
    beta = max(beta, 1e-15)
    error = float(np.abs(rows @ np.array([alpha, beta]) - 1).mean())
    link = Link(latency=float(alpha), bandwidth=float(1 / beta))
    return Fit(link, error, tuple(points))


def _codec_rate(name: str, rounds: int) -> float:
    """Bytes of float32 that are encoded or decoded in a second."""
    compressor = COMPRESSORS[name]()
    x = jax.random.normal(jax.random.key(0), (2**18,), jnp.float32)
    key = jax.random.key(1) if compressor.random else None
    both = jax.jit(lambda x: roundtrip(compressor, x, key))
    return 2 * x.nbytes / step_seconds(both, x, steps=3, rounds=rounds)


def _check(
    mesh: Any,
    names: Sequence[str],
    shape: Any,
    sizes: Sequence[int],
    rounds: int,
    codecs: Sequence[str],
) -> None:
    if isinstance(mesh, Emulation):
        raise ValueError(
            "measure: an emulated mesh has no links: its workers are one device's; "
            "give a jax.sharding.Mesh, or a plan.Network by hand"
        )
    if len(names) > 2:
        raise ValueError(
            f"measure: axis_name={tuple(names)} must be one axis, or two: (between "
            "hosts, inside them)"
        )
    if shape[names[0]] < 2:
        raise ValueError(
            f"measure: axis {names[0]!r} has {shape[names[0]]} worker: there is no "
            "link to measure; give a mesh of 2 or more"
        )
    if len(sizes) < 2 or min(sizes) < 4 or rounds < 1:
        raise ValueError(
            f"measure: sizes={tuple(sizes)} must be two or more, of 4 bytes and more, "
            f"and rounds={rounds} 1 or more"
        )
    if odd := [name for name in codecs if name not in COMPRESSORS]:
        raise ValueError(
            f"measure: codecs={odd[0]!r} is not a compressor; there are "
            + ", ".join(COMPRESSORS)
        )

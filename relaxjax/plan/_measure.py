"""The links of a mesh, the codecs of a device, and the computation of a step, measured.

    a message of b bytes to the next worker     t = hops alpha + line / beta
    an all-reduce of b bytes                    the same, with its own alpha and beta

in hops and line as `relaxjax.plan._traffic` counts them; each is timed inside one
program that does it several times in a row, at several sizes, and fitted by least
squares of relative errors. What a fit does not explain is its `error`.

Cost: some seconds; 2 (sizes) programs for each axis.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relaxjax._core._axis import AxisName
from relaxjax.compression import COMPRESSORS, roundtrip
from relaxjax.plan._network import CODEC, INSIDE, Network
from relaxjax.plan._timing import Repeated, step_seconds
from relaxjax.plan._traffic import psum
from relaxjax.schedule import Link
from relaxjax.workers import Emulation, workers_of

SIZES = (2**12, 2**16, 2**19, 2**21)  # bytes
CODECS = ("quantize8", "quantize4", "sign", "top_k")


class Fit(NamedTuple):
    """A link, as measured.

    Attributes:
      link: latency and bandwidth.
      error: mean absolute relative difference of the fit and what was measured.
      points: (bytes, seconds) of one exchange.
    """

    link: Link
    error: float
    points: tuple[tuple[int, float], ...]


class Measurement(NamedTuple):
    """What `measure` found.

    Attributes:
      network: for `rank` and `auto`; `network.save(path)` keeps it.
      fits: by what was fitted: "link", "psum" and, of two axes, "inside".
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
      mesh: with one data-parallel axis, or two: (between hosts, inside them).
      axis_name: the data-parallel axes; None means all axes of the mesh.
      sizes: of messages, in bytes, at least two.
      rounds: how often each is timed; the median counts.
      codecs: compressors that are timed, as relaxations spell them; others are taken to
        be as fast as the slowest of them.

    Raises:
      ValueError: an emulated mesh, which has no links; a single worker; fewer than two
        sizes; an unknown compressor; more than two axes.
    """
    workers = workers_of(mesh, axis_name, "measure")
    names = workers.axis_name
    _check(mesh, names, workers.mesh.shape, sizes, rounds, codecs)
    counts = [workers.mesh.shape[name] for name in names]
    per_host = counts[1] if len(counts) == 2 else 1
    network = Network(workers=int(np.prod(counts)), per_host=per_host)
    outer = network if per_host == 1 else Network(workers=counts[0])
    timed = Repeated(workers.mesh, rounds)
    fits = {
        "link": _fit(_sends(timed, names[0], sizes), lambda b: (1, per_host * b)),
        "psum": _fit(
            _sums(timed, names[0], sizes),
            lambda b: (psum(b // 4, outer).hops, per_host * psum(b // 4, outer).line),
        ),
    }
    if len(names) == 2:
        fits["inside"] = _fit(_sends(timed, names[1], sizes), lambda b: (1, b))
    rates = {name: _codec_rate(name, rounds) for name in codecs}
    found = Network(
        workers=network.workers,
        per_host=per_host,
        link=fits["link"].link,
        psum=fits["psum"].link,
        inside=fits["inside"].link if "inside" in fits else INSIDE,
        codec={**rates, "": min(rates.values(), default=CODEC)},
        joined=jax.default_backend() != "cpu" or jax.process_count() == 1,  # no gloo
        overlap=jax.default_backend() != "cpu",
    )
    return Measurement(found, fits)


def _sends(timed: Repeated, name: str, sizes: Sequence[int]) -> list[tuple[int, float]]:
    count = timed.mesh.shape[name]
    pairs = [(i, (i + 1) % count) for i in range(count)]
    return [
        (b, timed.seconds(lambda x: lax.ppermute(x, name, pairs), name, b))
        for b in sizes
    ]


def _sums(timed: Repeated, name: str, sizes: Sequence[int]) -> list[tuple[int, float]]:
    count = timed.mesh.shape[name]
    return [
        (b, timed.seconds(lambda x: lax.psum(x, name) / count, name, b)) for b in sizes
    ]


def _fit(
    points: Sequence[tuple[int, float]], of: Callable[[int], tuple[float, float]]
) -> Fit:
    """Latency and bandwidth, neither below zero."""
    rows = np.array([np.array(of(b), float) / t for b, t in points])
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
            f"measure: codecs={odd[0]!r} is no compressor; there are "
            + ", ".join(COMPRESSORS)
        )

"""Every decentralized method on a list of workers, in float64, as the papers write it.

Worker i pulls toward its own target: g_i = x_i - target_i. `w` is the matrix of each
step, None where a step is silent.
"""

from typing import Any

import numpy as np

Array = np.ndarray
Rounds = list[Array | None]


def mixed(w: Array | None, xs: list[Array]) -> list[Array]:
    """Worker i gets the sum over j of W_ij x_j."""
    n = len(xs)
    if w is None:
        return xs
    return [sum((w[i, j] * xs[j] for j in range(n)), 0 * xs[0]) for i in range(n)]


def gossip(targets: Array, rounds: Rounds, rate: float) -> list[list[Array]]:
    xs, seen = [0 * t for t in targets], []
    for w in rounds:
        xs = mixed(w, [x - rate * (x - t) for x, t in zip(xs, targets, strict=True)])
        seen.append(xs)
    return seen


def combine_then_adapt(targets, rounds: Rounds, rate: float) -> list[list[Array]]:
    xs, seen = [0 * t for t in targets], []
    for w in rounds:
        steps = [-rate * (x - t) for x, t in zip(xs, targets, strict=True)]
        xs = [m + u for m, u in zip(mixed(w, xs), steps, strict=True)]
        seen.append(xs)
    return seen


def d_squared(targets: Array, rounds: Rounds, rate: float) -> list[list[Array]]:
    """x = W (x - lr g), then x = W (2 x - x' - lr (g - g')); all steps are rounds."""
    xs, seen = [0 * t for t in targets], []
    old: Any = None
    for w in rounds:
        steps = [-rate * (x - t) for x, t in zip(xs, targets, strict=True)]
        if old is None:
            new = mixed(w, [x + u for x, u in zip(xs, steps, strict=True)])
        else:
            new = mixed(
                w,
                [
                    2 * x - x_old + u - u_old
                    for x, u, x_old, u_old in zip(xs, steps, *old, strict=True)
                ],
            )
        old, xs = (xs, steps), new
        seen.append(xs)
    return seen


def local_exact_diffusion(targets, w: Array, rate: float, every: int, steps: int):
    """k local steps with a correction c each; then all meet, and c takes a k-th."""
    xs = [0 * t for t in targets]
    cs, seen = [0 * t for t in targets], []
    for step in range(1, steps + 1):
        xs = [x - rate * (x - t) + c for x, t, c in zip(xs, targets, cs, strict=True)]
        if step % every == 0:
            met = mixed(w, xs)
            cs = [c + (m - x) / every for c, m, x in zip(cs, met, xs, strict=True)]
            xs = met
        seen.append(xs)
    return seen


def gradient_tracking(targets, rounds: Rounds, rate: float) -> list[list[Array]]:
    xs, ys = [0 * t for t in targets], [0 * t for t in targets]
    olds, seen = [0 * t for t in targets], []
    for w in rounds:
        gs = [x - t for x, t in zip(xs, targets, strict=True)]
        ys = mixed(w, [y + g - old for y, g, old in zip(ys, gs, olds, strict=True)])
        xs = mixed(w, [x - rate * y for x, y in zip(xs, ys, strict=True)])
        olds = gs
        seen.append(xs)
    return seen


def atc_tracking(targets, rounds: Rounds, rate: float) -> list[list[Array]]:
    """y is mixed alone, and the change of the gradient is added to it."""
    xs, ys = [0 * t for t in targets], [0 * t for t in targets]
    olds, seen = [0 * t for t in targets], []
    for w in rounds:
        gs = [x - t for x, t in zip(xs, targets, strict=True)]
        ys = [y + g - old for y, g, old in zip(mixed(w, ys), gs, olds, strict=True)]
        xs = mixed(w, [x - rate * y for x, y in zip(xs, ys, strict=True)])
        olds = gs
        seen.append(xs)
    return seen


def push_sum(targets: Array, rounds: Rounds, rate: float) -> list[list[Array]]:
    xs, ws, seen = [0 * t for t in targets], [np.ones(1) for _ in targets], []
    for p in rounds:
        zs = [x / w for x, w in zip(xs, ws, strict=True)]
        half = [x - rate * (z - t) for x, z, t in zip(xs, zs, targets, strict=True)]
        xs, ws = mixed(p, half), mixed(p, ws)
        seen.append([x / w for x, w in zip(xs, ws, strict=True)])
    return seen


def quasi_global_momentum(targets, rounds: Rounds, rate: float, beta: float):
    """With m as in the paper: in units of the gradient."""
    xs, ms = [0 * t for t in targets], [0 * t for t in targets]
    seen = []
    for w in rounds:
        ahead = [
            x - rate * (beta * m + x - t)
            for x, m, t in zip(xs, ms, targets, strict=True)
        ]
        new = mixed(w, ahead)
        ms = [
            beta * m + (1 - beta) * (x - y) / rate
            for m, x, y in zip(ms, xs, new, strict=True)
        ]
        xs = new
        seen.append(xs)
    return seen


def choco(targets, rounds: Rounds, rate, compress, gamma: float):
    """Models and public copies, each worker's own; 0 at the start."""
    n = len(targets)
    xs, known, seen = [0 * t for t in targets], [0 * t for t in targets], []
    for w in rounds:
        xs = [x - rate * (x - t) for x, t in zip(xs, targets, strict=True)]
        if w is not None:
            known = [k + compress(x - k) for x, k in zip(xs, known, strict=True)]
            xs = [
                xs[i] + gamma * sum(w[i, j] * (known[j] - known[i]) for j in range(n))
                for i in range(n)
            ]
        seen.append(xs)
    return seen


def dcd(targets, rounds: Rounds, rate: float, compress) -> list[list[Array]]:
    """The updates of several steps are summed up before they are sent."""
    xs, known, seen = [0 * t for t in targets], [0 * t for t in targets], []
    for w in rounds:
        xs = [x - rate * (x - t) for x, t in zip(xs, targets, strict=True)]
        if w is not None:
            sums = [x - k for x, k in zip(xs, known, strict=True)]
            half = [m + u for m, u in zip(mixed(w, known), sums, strict=True)]
            known = [k + compress(h - k) for k, h in zip(known, half, strict=True)]
            xs = known
        seen.append(xs)
    return seen


def deep_squeeze(targets, rounds: Rounds, rate, compress, eta: float):
    n = len(targets)
    xs, lost, seen = [0 * t for t in targets], [0 * t for t in targets], []
    for w in rounds:
        xs = [x - rate * (x - t) for x, t in zip(xs, targets, strict=True)]
        if w is not None:
            v = [x + e for x, e in zip(xs, lost, strict=True)]
            c = [compress(x) for x in v]
            lost = [x - q for x, q in zip(v, c, strict=True)]
            xs = [
                xs[i] + eta * sum(w[i, j] * (c[j] - c[i]) for j in range(n))
                for i in range(n)
            ]
        seen.append(xs)
    return seen


def moniqua(targets, rounds: Rounds, rate: float, theta: float, bits: int):
    """The parts of [0, B) are listed; of all values that fit, x takes the nearest."""
    modulus = 2 * theta / (1 - 2.0**-bits)
    grid = (np.arange(2**bits) + 0.5) * modulus / 2**bits

    def rounded(x: Array) -> Array:
        """The nearest point of the grid, around the circle."""
        apart = np.abs(x[:, None] % modulus - grid)
        return grid[np.minimum(apart, modulus - apart).argmin(axis=1)]

    def near(q: Array, x: Array) -> Array:
        shifted = q + modulus * (np.round(x / modulus)[:, None] + np.arange(-2, 3)).T
        return np.take_along_axis(
            shifted, np.abs(shifted - x).argmin(axis=0)[None], axis=0
        )[0]

    xs, seen = [0 * t for t in targets], []
    for w in rounds:
        steps = [-rate * (x - t) for x, t in zip(xs, targets, strict=True)]
        if w is not None:
            q = [rounded(x) for x in xs]
            xs = [
                x
                + sum(w[i, j] * (near(q[j], x) - near(q[i], x)) for j in range(len(q)))
                for i, x in enumerate(xs)
            ]
        xs = [x + u for x, u in zip(xs, steps, strict=True)]
        seen.append(xs)
    return seen


def relay_sum(targets, rounds: Rounds, rate: float) -> list[list[Array]]:
    """Messages and their counts, by (sender, receiver); both travel."""
    n = len(targets)
    xs, seen = [0 * t for t in targets], []
    heard: dict[tuple[int, int], Array] = {}
    counts: dict[tuple[int, int], int] = {}
    for w in rounds:
        xs = [x - rate * (x - t) for x, t in zip(xs, targets, strict=True)]
        if w is not None:
            near = [[j for j in range(n) if j != i and w[i, j] != 0] for i in range(n)]
            links = [(i, j) for i in range(n) for j in near[i]]
            new, many = {}, {}
            for i, j in links:
                others = [(k, i) for k in near[i] if k != j]
                new[i, j] = xs[i] + sum(heard[m] for m in others if m in heard)
                many[i, j] = 1 + sum(counts.get(m, 0) for m in others)
            heard, counts = new, many
            xs = [
                (
                    (n - sum(counts[j, i] for j in near[i])) * xs[i]
                    + sum((heard[j, i] for j in near[i]), 0 * xs[i])
                )
                / n
                for i in range(n)
            ]
        seen.append(xs)
    return seen

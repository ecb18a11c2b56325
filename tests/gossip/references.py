"""Every decentralised method on a list of workers, in float64, as the papers write it.

Worker i pulls towards its own target: g_i = x_i - target_i. `w` is the matrix of each
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


def choco(targets, w: Array, rate, compress, gamma: float, steps: int):
    """Models and public copies, each worker's own; 0 at the start."""
    n = len(targets)
    xs, known, seen = [0 * t for t in targets], [0 * t for t in targets], []
    for _ in range(steps):
        half = [x - rate * (x - t) for x, t in zip(xs, targets, strict=True)]
        known = [k + compress(h - k) for h, k in zip(half, known, strict=True)]
        xs = [
            half[i] + gamma * sum(w[i, j] * (known[j] - known[i]) for j in range(n))
            for i in range(n)
        ]
        seen.append(xs)
    return seen


def dcd(targets, w: Array, rate: float, compress, steps: int) -> list[list[Array]]:
    xs, seen = [0 * t for t in targets], []
    for _ in range(steps):
        steps_ = [-rate * (x - t) for x, t in zip(xs, targets, strict=True)]
        half = [m + u for m, u in zip(mixed(w, xs), steps_, strict=True)]
        xs = [x + compress(h - x) for x, h in zip(xs, half, strict=True)]
        seen.append(xs)
    return seen


def deep_squeeze(targets, w: Array, rate, compress, eta: float, steps: int):
    n = len(targets)
    xs, lost, seen = [0 * t for t in targets], [0 * t for t in targets], []
    for _ in range(steps):
        half = [x - rate * (x - t) for x, t in zip(xs, targets, strict=True)]
        v = [h + e for h, e in zip(half, lost, strict=True)]
        c = [compress(one) for one in v]
        lost = [one - told for one, told in zip(v, c, strict=True)]
        xs = [
            half[i] + eta * sum(w[i, j] * (c[j] - c[i]) for j in range(n))
            for i in range(n)
        ]
        seen.append(xs)
    return seen

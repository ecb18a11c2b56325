"""1-bit LAMB and 0/1 Adam on a list of workers, in float64."""

import numpy as np

from tests.gradients.references import SHAPES, Leaves, two_shot_signs

NAMES = sorted(SHAPES)
MATRICES = [k for k in reversed(NAMES) if len(SHAPES[k]) > 1]


def start_of(seed: int = 7) -> Leaves:
    """Params of different sizes, none of them zero."""
    rng = np.random.default_rng(seed)
    sizes = {"w": 1.0, "v": 0.1, "b": 3.0}
    return {
        k: (sizes[k] * rng.normal(size=s)).astype(np.float32) for k, s in SHAPES.items()
    }


def no_residuals(workers: int) -> list[np.ndarray]:
    size = sum(int(np.prod(SHAPES[k])) for k in MATRICES)
    return [np.zeros(size) for _ in range(workers)]


def signed_mean(own: list[Leaves], residuals: list[np.ndarray]) -> tuple[Leaves, list]:
    """Vectors as they are; matrices in one bucket of signs, last leaf first."""
    mean = {k: np.mean([o[k] for o in own], axis=0) for k in NAMES}
    rows = [np.concatenate([o[k].ravel() for k in MATRICES]) for o in own]
    flat, residuals = two_shot_signs(rows, residuals)
    ends = np.cumsum([mean[k].size for k in MATRICES])
    for k, part in zip(MATRICES, np.split(flat, ends[:-1]), strict=True):
        mean[k] = part.reshape(SHAPES[k])
    return mean, residuals


def norm(x: np.ndarray) -> float:
    return float(np.sqrt((x**2).sum()))


def one_bit_lamb_reference(
    grads: list[Leaves],
    workers: int,
    start: Leaves,
    *,
    freeze_step,
    b1,
    b2,
    eps,
    decay,
    rate,
    d,
    bounds,
    factor_bounds,
    change,
) -> tuple[Leaves, list[Leaves]]:
    """LAMB, then momentum in signs. Also the factors of each step."""
    x = {k: start[k].astype(np.float64) for k in NAMES}
    m = {k: np.zeros(SHAPES[k]) for k in NAMES}
    v, f = dict(m), dict(m)
    c, r, s = ({k: z for k in NAMES} for z in (0.0, 1.0, 1.0))
    residuals = no_residuals(workers)
    factors = []
    for t, g in enumerate(grads, start=1):
        before = m
        own = [
            {k: b1 * m[k] + (1 - b1) * g[k][i] for k in NAMES} for i in range(workers)
        ]
        if t <= freeze_step:
            mean = {k: g[k].astype(np.float64).mean(0) for k in NAMES}
            m = {k: b1 * m[k] + (1 - b1) * mean[k] for k in NAMES}
            v = {k: b2 * v[k] + (1 - b2) * mean[k] ** 2 for k in NAMES}
            f = v
        else:
            unit = {
                k: (np.sqrt(v[k] / (1 - b2**freeze_step)) + eps) / s[k] for k in NAMES
            }
            own = [{k: o[k] / unit[k] for k in NAMES} for o in own]
            m, residuals = signed_mean(own, residuals)
            m = {k: unit[k] * m[k] for k in NAMES}
            f = {
                k: b2 * f[k] + (1 - b2) * ((m[k] - b1 * before[k]) / (1 - b1)) ** 2
                for k in NAMES
            }
        for k in NAMES:
            frozen = np.sqrt(v[k] / (1 - b2 ** min(t, freeze_step))) + eps
            u = m[k] / (1 - b1**t) / frozen + decay * x[k]
            if t <= freeze_step:
                q = norm(x[k]) / norm(u)
                c[k] = d * c[k] + (1 - d) * min(max(q, bounds[0]), bounds[1])
            else:
                fresh = np.sqrt(f[k] / (1 - b2**t)) + eps
                new = min(
                    max((frozen / fresh).max(), factor_bounds[0]), factor_bounds[1]
                )
                r[k] = min(max(new, r[k] * (1 - change)), r[k] * (1 + change))
                q = r[k] * c[k] / (1 - d**freeze_step)
            x[k] = x[k] - rate * q * u
        if t == freeze_step:
            steps = {k: m[k] / (np.sqrt(v[k] / (1 - b2**t)) + eps) for k in NAMES}
            sizes = {k: norm(steps[k]) / np.sqrt(m[k].size) for k in NAMES}
            s = {k: np.mean(list(sizes.values())) / sizes[k] for k in NAMES}
        factors.append(dict(r))
    return {k: x[k].astype(np.float32) for k in SHAPES}, factors


def zero_one_adam_reference(
    grads: list[Leaves],
    workers: int,
    start: Leaves,
    *,
    freeze_step,
    renewals,
    synchronizations,
    b1,
    b2,
    eps,
    decay,
    rates,
) -> list[list[Leaves]]:
    """Each worker's params after each step; the caller gives both sets of steps."""
    a = {k: start[k].astype(np.float64) for k in NAMES}
    v = {k: np.zeros(SHAPES[k]) for k in NAMES}
    m = [dict(v) for _ in range(workers)]
    u = [dict(v) for _ in range(workers)]
    residuals, w_sum, rate_sum, k_v = no_residuals(workers), 0.0, 0.0, 0
    history = []
    for t, g in enumerate(grads, start=1):
        if t in renewals:
            mean = {k: g[k].astype(np.float64).mean(0) for k in NAMES}
            v = {k: b2 * v[k] + (1 - b2) * mean[k] ** 2 for k in NAMES}
            k_v += 1
        w = rates[t - 1] / (1 - b1**t)
        w_sum, rate_sum = w_sum + w, rate_sum + rates[t - 1]
        for i in range(workers):
            m[i] = {k: b1 * m[i][k] + (1 - b1) * g[k][i] for k in NAMES}
            u[i] = {k: u[i][k] + w * m[i][k] for k in NAMES}
        if t in synchronizations:
            d = {k: np.sqrt(v[k] / (1 - b2**k_v)) + eps for k in NAMES}
            own = [{k: u[i][k] / w_sum / d[k] for k in NAMES} for i in range(workers)]
            mean, residuals = signed_mean(own, residuals)
            mean = {k: d[k] * mean[k] for k in NAMES}
            m = [mean for _ in range(workers)]
            u = [{k: w_sum * mean[k] for k in NAMES} for _ in range(workers)]
        v_hat = {k: v[k] / (1 - b2**k_v) for k in NAMES}
        x = [
            {
                k: a[k] - own[k] / (np.sqrt(v_hat[k]) + eps) - rate_sum * decay * a[k]
                for k in NAMES
            }
            for own in u
        ]
        if t in synchronizations:
            a, w_sum, rate_sum = x[0], 0.0, 0.0
            u = [{k: np.zeros(SHAPES[k]) for k in NAMES} for _ in range(workers)]
        history.append(x)
    return history

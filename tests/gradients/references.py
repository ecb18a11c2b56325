"""Whole methods on a list of workers, in float64, and how the real ones are run."""

from typing import Any

import jax
import numpy as np

import relaxjax
from tests.helpers import step_of

SHAPES = {"w": (6, 5), "v": (4, 3, 2), "b": (7,)}
Leaves = dict[str, Any]


def gradients(workers: int, steps: int, seed: int = 0) -> list[Leaves]:
    """For each step, the gradients of all workers, stacked."""
    rng = np.random.default_rng(seed)
    common = {k: rng.normal(size=(1, *s)) for k, s in SHAPES.items()}
    return [
        {
            k: (common[k] + rng.normal(size=(workers, *s))).astype(np.float32)
            for k, s in SHAPES.items()
        }
        for _ in range(steps)
    ]


def run(tx: Any, grads: list[Leaves], workers: int, start: Any = None) -> Leaves:
    """Params after these gradients, checked to be the same on all workers."""
    if start is None:
        start = {k: np.zeros(s, np.float32) for k, s in SHAPES.items()}
    mesh = relaxjax.emulate(workers)
    own = step_of(lambda params, batch: jax.tree.map(lambda x: x[0], batch), tx)
    step = relaxjax.data_parallel(own, mesh)
    state = relaxjax.init(tx, start, mesh)
    for batch in grads:
        *state, _ = step(*state, batch)
    for leaf in jax.tree.leaves(state[0]):
        for worker in range(workers):
            np.testing.assert_array_equal(leaf[worker], leaf[0])
    return jax.tree.map(lambda x: np.asarray(x[0]), state[0])


def mean_sign(x: np.ndarray) -> np.ndarray:
    return np.abs(x).mean() * np.where(x >= 0, 1.0, -1.0)


def two_shot_signs(
    rows: list[np.ndarray], residuals: list[np.ndarray]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """DoubleSqueeze with mean signs: the mean that all receive, and the residuals.

    A worker's own chunk stays as it is; in its place is what it loses as a server.
    """
    n, d = len(rows), rows[0].size
    c = -(-d // n)
    sent = [np.pad(r + e, (0, n * c - d)) for r, e in zip(rows, residuals, strict=True)]
    chunks = [s.reshape(n, c) for s in sent]
    lost = [np.zeros((n, c)) for _ in range(n)]
    mean = np.zeros((n, c))
    for server in range(n):
        parts = []
        for worker in range(n):
            x = chunks[worker][server]
            coded = x if worker == server else mean_sign(x)
            lost[worker][server] = x - coded
            parts.append(coded)
        q = np.mean(parts, axis=0)
        mean[server] = mean_sign(q)
        lost[server][server] = n * (q - mean[server])
    return mean.ravel()[:d], [x.ravel()[:d] for x in lost]


def one_bit_adam_reference(
    grads: list[Leaves], workers: int, *, freeze_step, b1, b2, eps, decay, rate
) -> Leaves:
    """Adam, then momentum in signs; matrices in one bucket, last leaf first."""
    names = sorted(SHAPES)
    x = {k: np.zeros(SHAPES[k]) for k in names}
    m = {k: np.zeros(SHAPES[k]) for k in names}
    v = {k: np.zeros(SHAPES[k]) for k in names}
    matrices = [k for k in reversed(names) if len(SHAPES[k]) > 1]
    size = sum(x[k].size for k in matrices)
    residuals = [np.zeros(size) for _ in range(workers)]
    for t, g in enumerate(grads, start=1):
        own = [
            {k: b1 * m[k] + (1 - b1) * g[k][i] for k in names} for i in range(workers)
        ]
        m = {k: np.mean([o[k] for o in own], axis=0) for k in names}
        if t <= freeze_step:
            for k in names:
                v[k] = b2 * v[k] + (1 - b2) * g[k].mean(0).astype(np.float64) ** 2
        else:
            d = {k: np.sqrt(v[k] / (1 - b2**freeze_step)) + eps for k in names}
            rows = [
                np.concatenate([(o[k] / d[k]).ravel() for k in matrices]) for o in own
            ]
            flat, residuals = two_shot_signs(rows, residuals)
            ends = np.cumsum([x[k].size for k in matrices])
            for k, part in zip(matrices, np.split(flat, ends[:-1]), strict=True):
                m[k] = d[k] * part.reshape(SHAPES[k])
        for k in names:
            m_hat = m[k] / (1 - b1**t)
            v_hat = v[k] / (1 - b2 ** min(t, freeze_step))
            x[k] = x[k] - rate * (m_hat / (np.sqrt(v_hat) + eps) + decay * x[k])
    return {k: x[k].astype(np.float32) for k in SHAPES}

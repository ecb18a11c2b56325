"""Compressed exchanges on lists of workers, as slow and plain as they can be.

`coded(i, x, place)` is what arrives of x when worker i sends it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

Arrays = list[np.ndarray]
Coded = Callable[[int, np.ndarray, int], np.ndarray]


def one_shot(xs: Arrays, coded: Coded) -> tuple[np.ndarray, Arrays]:
    arrived = [coded(i, x, 0) for i, x in enumerate(xs)]
    return np.mean(arrived, axis=0), [x - y for x, y in zip(xs, arrived, strict=True)]


def psum(xs: Arrays, coded: Coded) -> tuple[np.ndarray, Arrays]:
    n = len(xs)
    arrived = [coded(i, x / n, 0) for i, x in enumerate(xs)]
    lost = [x - n * y for x, y in zip(xs, arrived, strict=True)]
    return np.sum(arrived, axis=0), lost


def chunks_of(x: np.ndarray, n: int) -> np.ndarray:
    return np.pad(x, (0, -len(x) % n)).reshape(n, -1)


def two_shot(xs: Arrays, coded: Coded) -> tuple[np.ndarray, Arrays]:
    n, d = len(xs), len(xs[0])
    chunks = [chunks_of(x, n) for x in xs]
    lost = [np.zeros_like(c) for c in chunks]
    means = []
    for i in range(n):  # the server of chunk i
        total = chunks[i][i].copy()
        for j in range(n):
            if j != i:
                arrived = coded(j, chunks[j][i], i)
                lost[j][i] = chunks[j][i] - arrived
                total = total + arrived
        served = coded(i, total / n, n + i)
        lost[i][i] = n * (total / n - served)
        means.append(served)
    return np.concatenate(means)[:d], [x.ravel()[:d] for x in lost]


def ring(xs: Arrays, coded: Coded) -> tuple[np.ndarray, Arrays]:
    n, d = len(xs), len(xs[0])
    chunks = [chunks_of(x, n) for x in xs]
    lost = [np.zeros_like(c) for c in chunks]
    means: list[Any] = [None] * n
    for k in range(n):  # chunk k starts behind worker k, and ends there
        partial = chunks[(k + 1) % n][k] / n
        for s in range(n):
            i = (k + 1 + s) % n
            arrived = coded(i, partial, s * n + k)
            lost[i][k] = n * (partial - arrived)
            following = chunks[(i + 1) % n][k] / n
            partial = arrived + (following if s < n - 1 else 0)
        means[k] = partial
    return np.concatenate(means)[:d], [x.ravel()[:d] for x in lost]


def hierarchical(xs: Arrays, coded: Coded) -> tuple[np.ndarray, Arrays]:
    """On two hosts (on one, if there are fewer workers than that)."""
    hosts = min(2, len(xs))
    m, d = len(xs) // hosts, len(xs[0])
    lost = [np.zeros((m, -(-d // m)), np.float32) for _ in xs]
    means = []
    for j in range(m):
        of_hosts = [
            np.mean([chunks_of(x, m)[j] for x in xs[h * m : (h + 1) * m]], axis=0)
            for h in range(hosts)
        ]

        def of_place(h, x, place, j=j):
            return coded(h * m + j, x, place)

        mean, gone = two_shot(of_hosts, of_place)
        means.append(mean)
        for h in range(hosts):
            lost[h * m + j][j] = m * gone[h]
    return np.concatenate(means)[:d], [x.ravel()[:d] for x in lost]


def two_level(
    xs: Arrays, coded: Coded, hosts: int | None = None
) -> tuple[np.ndarray, Arrays]:
    """On two hosts (on one, if there are fewer workers than that)."""
    h = hosts or min(2, len(xs))
    m, d = len(xs) // h, len(xs[0])
    chunks = [chunks_of(x, m) for x in xs]
    lost = [np.zeros_like(c) for c in chunks]
    means = []
    for j in range(m):
        of_hosts = []
        for a in range(h):
            total = chunks[a * m + j][j].copy()
            for i in range(m):
                if i != j:
                    arrived = coded(a * m + i, chunks[a * m + i][j], j)
                    lost[a * m + i][j] = chunks[a * m + i][j] - arrived
                    total = total + arrived
            of_hosts.append(total / m)

        def of_place(a, x, place, j=j):  # piece k goes up at k and down at h + k
            step, k = divmod(place, h)
            return coded(a * m + j, x, m + step * m * h + j * h + k)

        mean, gone = two_shot(of_hosts, of_place)
        means.append(mean)
        for a in range(h):
            lost[a * m + j][j] = m * gone[a]
    return np.concatenate(means)[:d], [x.ravel()[:d] for x in lost]


REFERENCES = {
    "psum": psum,
    "one_shot": one_shot,
    "two_shot": two_shot,
    "ring": ring,
    "hierarchical": hierarchical,
    "two_level": two_level,
}

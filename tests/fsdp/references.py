"""Sharded training as lists of workers, one leaf at a time, in numpy."""

import numpy as np


def rows_of(x, n: int) -> np.ndarray:
    """[n, c]: slices of a leaf, the last filled with zeros."""
    flat = np.asarray(x, np.float32).ravel()
    return np.pad(flat, (0, -flat.size % n)).reshape(n, -1)


def rounded(x, bits: int) -> np.ndarray:
    """`quantize(bits, block_size=None)` of a vector, decoded."""
    levels = np.float32(2 ** (bits - 1) - 1)
    most = np.abs(x).max(initial=0)
    if most == 0:
        return np.zeros_like(x)
    return (np.rint(x / most * levels) / levels * most).astype(np.float32)


def gathered(x, n: int, bits: int) -> np.ndarray:
    """What every worker computes with."""
    flat = np.concatenate([rounded(row, bits) for row in rows_of(x, n)])
    return flat[: np.size(x)].reshape(np.shape(x))


def scattered(gradients, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """One hop of [n, ...]: the mean, and what each worker's messages lost."""
    n = len(gradients)
    sent = np.stack([rows_of(g, n) for g in gradients])  # [sender, receiver, c]
    seen = np.stack([[rounded(row, bits) for row in rows] for rows in sent])
    for i in range(n):
        seen[i, i] = sent[i, i]  # what stays is not encoded
    size, shape = np.size(gradients[0]), np.shape(gradients[0])
    mean = seen.mean(axis=0).ravel()[:size].reshape(shape)
    lost = [x.ravel()[:size].reshape(shape) for x in sent - seen]
    return mean, np.stack(lost)


def scattered_twice(
    gradients, hosts: int, bits: int, across: int | None = None
) -> np.ndarray:
    """Two hops of [hosts * m, ...]: codes inside a host, then between hosts."""
    n, m = len(gradients), len(gradients) // hosts
    rows = np.stack([rows_of(g, n) for g in gradients])  # [sender, slice, c]
    out = np.zeros_like(rows[0])
    for j in range(m):  # the place inside a host
        mine = [a * m + j for a in range(hosts)]  # slices of that place's workers
        means = []
        for host in range(hosts):
            senders = [host * m + i for i in range(m)]
            packed = [rows[i, mine].ravel() for i in senders]
            seen = [x if i % m == j else rounded(x, bits)
                    for i, x in zip(senders, packed, strict=True)]  # fmt: skip
            means.append(np.mean(seen, axis=0).reshape(hosts, -1))
        for a in range(hosts):
            pieces = [x[a] if b == a else rounded(x[a], across or bits)
                      for b, x in enumerate(means)]  # fmt: skip
            out[a * m + j] = np.mean(pieces, axis=0)
    return out.ravel()[: np.size(gradients[0])].reshape(np.shape(gradients[0]))

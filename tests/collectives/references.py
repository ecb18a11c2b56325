"""Every algorithm on a list of blocks, one per worker, that a person can check by eye.

Each reference adds in the order of its algorithm, in float32 or wider, and rounds where
the algorithm rounds: the answers are to be bitwise the same.
"""

import numpy as np

Blocks = list[np.ndarray]


def wide(x: np.ndarray) -> np.ndarray:
    """Narrow floats in float32; anything else as it is."""
    narrow = x.dtype.itemsize < 4 and not np.issubdtype(x.dtype, np.integer)
    return x.astype(np.float32) if narrow else x


def add(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (wide(x) + wide(y)).astype(x.dtype)


def rotate(blocks: Blocks, by: int) -> Blocks:
    return blocks[by:] + blocks[:by]


def in_turn(blocks: Blocks) -> np.ndarray:
    """One after the other, rounded at every addition."""
    total = blocks[0]
    for block in blocks[1:]:
        total = add(total, block)
    return total


def rounded_once(blocks: Blocks) -> np.ndarray:
    """One after the other, rounded at the end."""
    total = wide(blocks[0])
    for block in blocks[1:]:
        total = total + wide(block)
    return total.astype(blocks[0].dtype)


def ring(blocks: Blocks, step: int = 1) -> np.ndarray:
    """Chunk c starts one step behind worker c and arrives at worker c last."""
    n, size = len(blocks), blocks[0].size
    chunk = -(-size // n)
    flat = [block.ravel() for block in blocks]
    total = flat[0].copy()
    for c in range(n):
        where = slice(c * chunk, (c + 1) * chunk)
        order = [flat[(c + step * s) % n][where] for s in range(1, n + 1)]
        total[where] = in_turn(order)
    return total.reshape(blocks[0].shape)


def bidirectional_ring(blocks: Blocks) -> np.ndarray:
    half = -(-blocks[0].size // 2)
    first = ring([block.ravel()[:half] for block in blocks], 1)
    second = ring([block.ravel()[half:] for block in blocks], -1)
    return np.concatenate([first, second]).reshape(blocks[0].shape)


def fold(blocks: Blocks) -> Blocks:
    """The extra workers add theirs to the first ones, up to a power of two."""
    core = 1
    while 2 * core <= len(blocks):
        core *= 2
    extra = blocks[core:]
    folded = [add(x, y) for x, y in zip(blocks, extra, strict=False)]
    return folded + blocks[len(extra) : core]


def halving_doubling(blocks: Blocks) -> np.ndarray:
    """Upper half onto lower half of the workers: the far partners add first."""
    blocks = fold(blocks)
    while len(blocks) > 1:
        half = len(blocks) // 2
        blocks = [add(blocks[i], blocks[i + half]) for i in range(half)]
    return blocks[0]


def tree(blocks: Blocks) -> np.ndarray:
    """Neighbors add first; one without a neighbor waits."""
    while len(blocks) > 1:
        pairs = [blocks[i : i + 2] for i in range(0, len(blocks), 2)]
        blocks = [in_turn(pair) for pair in pairs]
    return blocks[0]


def hierarchical(blocks: Blocks, hosts: int) -> np.ndarray:
    devices = len(blocks) // hosts
    inside = [
        rounded_once(blocks[host * devices : (host + 1) * devices])
        for host in range(hosts)
    ]
    return rounded_once(inside)


def adasum_of_two(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """In float64, by the formula of the paper."""
    dot, aa, bb = np.sum(a * b), np.sum(a * a), np.sum(b * b)
    of_a = 1 - dot / (2 * aa) if aa else 1.0
    of_b = 1 - dot / (2 * bb) if bb else 1.0
    return of_a * a + of_b * b


def adasum(blocks: Blocks) -> np.ndarray:
    """Neighbors first, then pairs of pairs; one without a neighbor waits."""
    vectors = [np.asarray(block, np.float64) for block in blocks]
    while len(vectors) > 1:
        pairs = [vectors[i : i + 2] for i in range(0, len(vectors), 2)]
        vectors = [adasum_of_two(*p) if len(p) == 2 else p[0] for p in pairs]
    return vectors[0]

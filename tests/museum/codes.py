"""Exhibits of codes: zeros, tiny and huge numbers, chance, and what a sum means."""

import jax
import jax.numpy as jnp
import numpy as np

import relaxjax
from relaxjax import compression as codes
from relaxjax.compression import roundtrip
from tests.museum.exhibit import Exhibit, below, near, once

RNG = np.random.default_rng(0)
X = RNG.normal(size=64).astype(np.float32)


def nan_share(x: object) -> float:
    return float(np.isnan(np.asarray(x)).mean())


def wrong_qsgd_of_zeros() -> float:
    x = np.zeros(8)
    with np.errstate(invalid="ignore"):
        return nan_share(np.linalg.norm(x) * np.round(4 * x / np.linalg.norm(x)) / 4)


def wrong_constant() -> float:
    x = np.full(8, 5.0)
    with np.errstate(invalid="ignore"):
        scaled = (x - x.min()) / (x.max() - x.min())
    return nan_share(x.min() + scaled * (x.max() - x.min()))


def wrong_random_k() -> float:
    rng = np.random.default_rng(1)
    kept = [np.where(rng.permutation(64) < 16, X, 0) for _ in range(400)]
    return float(np.dot(np.mean(kept, axis=0), X) / np.dot(X, X))


def our_random_k() -> float:
    of = jax.jit(lambda s: roundtrip(codes.random_k(0.25), jnp.asarray(X), s))
    kept = np.mean([of(s) for s in range(400)], axis=0)
    return float(np.dot(kept, X) / np.dot(X, X))


def our_distinct() -> float:
    sent = roundtrip(codes.random_k(0.5), jnp.ones(64), 3)
    return float(np.count_nonzero(sent))


def wrong_seeds() -> float:
    def picked(name: str) -> set[int]:
        seed = sum(name.encode())
        return set(np.random.default_rng(seed).permutation(64)[:16].tolist())

    return len(picked("ab") & picked("ba")) / 16


def our_seeds() -> float:
    """Two leaves of one size in one all-reduce."""
    tx = relaxjax.all_reduce("data", compressor=codes.random_k(0.25))
    sent = once(tx, {"ab": np.ones((2, 64)), "ba": np.ones((2, 64))})
    ab, ba = (set(np.flatnonzero(sent[k][0]).tolist()) for k in ("ab", "ba"))
    return len(ab & ba) / 16


def wrong_threshold() -> float:
    x, most = -np.linspace(0.1, 1.0, 10), 0.75
    return float((np.abs(x) >= min(most, x.max())).sum())


def our_threshold() -> float:
    x = jnp.asarray(-np.linspace(0.1, 1.0, 10), jnp.float32)
    return float(np.count_nonzero(roundtrip(codes.threshold(0.75, 10), x)))


FAR = (1e6 + np.linspace(0, 4, 9)).astype(np.float32)


def wrong_min_max() -> float:
    """Codes counted from zero, in float32, and cut to eight bits."""
    scale = np.float32(255) / (FAR.max() - FAR.min() + np.float32(1e-7))
    top = np.round(FAR.max() * scale)
    level = (np.round(FAR * scale) - (top - 255)).astype(np.int64).astype(np.uint8)
    decoded = (level.astype(np.float64) + float(top) - 255) / float(scale)
    return float(np.abs(decoded - FAR).max() / 4)


def our_min_max() -> float:
    decoded = np.asarray(roundtrip(codes.min_max_uint8(), jnp.asarray(FAR)), np.float64)
    return float(np.abs(decoded - FAR).max() / 4)


def wrong_epsilon() -> float:
    x = 1e-12 * X
    levels = np.round(127 * x / (np.abs(x).max() + 1e-7))
    return float(np.abs(levels).max())


def our_epsilon() -> float:
    x = np.float32(1e-12) * X
    decoded = roundtrip(codes.quantize(8), jnp.asarray(x))
    return float(127 * np.abs(decoded).max() / np.abs(x).max())


UNLIKE = np.stack([X, 100 * RNG.normal(size=64)]).astype(np.float32)


def apart(found: np.ndarray) -> float:
    mean = UNLIKE.mean(axis=0)
    return float(np.linalg.norm(found - mean) / np.linalg.norm(mean))


def wrong_sum() -> float:
    scales = np.abs(UNLIKE).max(axis=1) / 127
    summed = np.round(UNLIKE / scales[:, None]).sum(axis=0)
    mean = UNLIKE.mean(axis=0)
    return float(
        np.linalg.norm(summed * scales.mean() / 2 - mean) / np.linalg.norm(mean)
    )


def our_sum() -> float:
    tx = relaxjax.all_reduce("data", compressor=codes.quantize(8, block_size=None))
    return apart(once(tx, UNLIKE)[0])


def wrong_half() -> float:
    with np.errstate(over="ignore"):
        return float(np.sum([np.float16(20_000)] * 8, dtype=np.float16) / 8)


def our_half() -> float:
    tx = relaxjax.all_reduce("data", compressor=codes.cast("float16"))
    return float(once(tx, np.full((8, 4), 20_000, np.float32))[0, 0])


def wrong_bits() -> float:
    bits = np.asarray(jnp.ones((), jnp.bfloat16)).view(np.uint16)
    return float(bits.view(np.float16))


EXHIBITS = [
    Exhibit(
        "A block of zeros, divided by its norm",
        wrong_qsgd_of_zeros,
        lambda: nan_share(roundtrip(codes.qsgd(4), jnp.zeros(8), 0)),
        near(0),
    ),
    Exhibit(
        "A block of equal values, divided by its range",
        wrong_constant,
        lambda: nan_share(roundtrip(codes.min_max_uint8(), jnp.full(8, 5.0))),
        near(0),
    ),
    Exhibit(
        "Random elements without their factor",
        wrong_random_k,
        our_random_k,
        near(1, 0.1),
    ),
    Exhibit(
        "Random elements, some of them twice",
        lambda: float(len(set(np.random.default_rng(0).integers(0, 64, 32).tolist()))),
        our_distinct,
        near(32),
    ),
    Exhibit("A seed that two leaves share", wrong_seeds, our_seeds, below(0.7)),
    Exhibit(
        "A threshold under the largest signed value",
        wrong_threshold,
        our_threshold,
        near(3),
    ),
    Exhibit("Codes far from zero", wrong_min_max, our_min_max, below(0.02)),
    Exhibit(
        "An epsilon that is not relative", wrong_epsilon, our_epsilon, near(127, 0.5)
    ),
    Exhibit("Codes that are added up", wrong_sum, our_sum, below(0.02)),
    Exhibit(
        "A sum in float16, divided afterwards", wrong_half, our_half, near(20_000, 10)
    ),
    Exhibit(
        "Sixteen bits, read as the other sixteen",
        wrong_bits,
        lambda: float(roundtrip(codes.cast("bfloat16"), jnp.ones(4))[0]),
        near(1),
    ),
]

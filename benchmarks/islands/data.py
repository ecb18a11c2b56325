"""Handwritten digits from one file of arrays, and a first perceptron: NumPy alone.

A process that has to start again quickly imports neither scikit-learn nor a library of
layers: the arrays are written once, before the run. Each pixel of each batch has noise
of its own, so that no row is seen twice: the loss then says what has been learned, and
not what was learned by heart.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HELD_OUT = 360
NOISE = 0.5  # standard deviation
COPIES = 10  # of each row, with noise of their own, where a loss is measured
FILE = "digits.npz"


class Rows(NamedTuple):
    """Images of digits, float32[rows, 64] from 0 to 1, and labels, int32[rows]."""

    images: Any
    labels: Any


def write(folder: Path) -> None:
    """Puts the data that come with scikit-learn into a folder."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = np.float32(images[order]) / 16, np.int32(labels[order])
    np.savez(folder / FILE, images=images, labels=labels)


def read(folder: Path) -> tuple[Rows, Rows]:
    """Rows to train on, and rows held out."""
    with np.load(folder / FILE) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    here = slice(HELD_OUT, None), slice(None, HELD_OUT)
    train, held_out = (Rows(images[part], labels[part]) for part in here)
    return train, held_out


def params_of(seed: int, width: int) -> dict[str, np.ndarray]:
    """A perceptron with two hidden layers."""
    rng, sizes = np.random.default_rng(seed), (64, width, width, 10)
    params = {}
    for i, (n, m) in enumerate(pairwise(sizes)):
        params[f"b{i}"] = np.zeros(m, np.float32)
        params[f"w{i}"] = np.float32(rng.normal(size=(n, m)) / np.sqrt(n))
    return params


def batches(train: Rows, seed: int, rows: int) -> Iterator[Rows]:
    """Rows drawn with replacement, forever; the same for the same seed."""
    rng = np.random.default_rng(seed)
    while True:
        drawn = rng.integers(len(train.labels), size=rows)
        clean = Rows(train.images[drawn], train.labels[drawn])
        yield clean._replace(images=clean.images + _noise(rng, clean.images.shape))


def noisy(rows: Rows, seed: int) -> Rows:
    """Rows to measure a loss with: each several times, with other noise."""
    images, labels = (np.concatenate([x] * COPIES) for x in rows)
    noise = _noise(np.random.default_rng(seed), images.shape)
    return Rows(images + noise, labels)


def _noise(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return NOISE * rng.standard_normal(shape, np.float32)

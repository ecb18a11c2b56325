"""Digits that are split by label over workers, in folds that together hold out all.

Source of the split: Hsu et al. 2019. Each worker draws shares of the ten labels from a
Dirichlet distribution with all parameters alpha, and then its rows by these shares,
none twice; where a label runs out, the shares of the others make up for it. All workers
have equally many rows. A small alpha leaves a worker with one or two labels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold

LABELS = 10
_FOLD_SEED = 0  # one split into folds for all runs, so that they compare


class Splits(NamedTuple):
    """Data to train on and to test with; one for each fold, seed and alpha.

    Attributes:
      images: float32[splits, workers, rows, 64], from 0 to 1.
      labels: int32[splits, workers, rows].
      held_images: float32[splits, held out, 64], the last repeated where a fold has
        fewer.
      held_labels: int32[splits, held out]; -1 there, which no model says.
      seeds: int[splits].
      alphas: float[splits].
    """

    images: np.ndarray
    labels: np.ndarray
    held_images: np.ndarray
    held_labels: np.ndarray
    seeds: np.ndarray
    alphas: np.ndarray


def splits_of(
    *, alphas: Sequence[float], seeds: Sequence[int], folds: int, workers: int
) -> Splits:
    """All digits, split for every alpha, seed and fold.

    Args:
      alphas: parameters of the Dirichlet distributions.
      seeds: seeds of the splits among workers.
      folds: number of folds; each image is held out in one of them.
      workers: number of workers, among whom the other images are split.
    """
    pixels, targets = load_digits(return_X_y=True)
    images = np.asarray(pixels, np.float32) / 16
    targets = np.asarray(targets, np.int32)
    split = StratifiedKFold(folds, shuffle=True, random_state=_FOLD_SEED)
    parts = list(split.split(images, targets))
    most = max(len(held) for _, held in parts)
    fields = []
    for alpha in alphas:
        for seed in seeds:
            for fold, (train, held) in enumerate(parts):
                rng = np.random.default_rng([seed, fold, round(1e6 * alpha)])
                rows = train[by_label(targets[train], alpha, workers, rng)]
                missing = most - len(held)
                padded = np.append(held, np.repeat(held[-1:], missing))
                labels = np.append(targets[held], np.full(missing, -1, np.int32))
                arrays = images[rows], targets[rows], images[padded], labels
                fields.append((*arrays, seed, alpha))
    return Splits(*map(np.stack, zip(*fields, strict=True)))


def by_label(
    labels: np.ndarray, alpha: float, workers: int, rng: np.random.Generator
) -> np.ndarray:
    """The indices of each worker's rows: int[workers, rows // workers].

    Args:
      labels: int[rows], 0 to 9.
      alpha: parameter of the Dirichlet distributions, over 0.
      workers: number of workers.
      rng: draws the shares and the rows.
    """
    left = [
        rng.permutation(np.flatnonzero(labels == k)).tolist() for k in range(LABELS)
    ]
    rows = len(labels) // workers
    drawn = np.empty((workers, rows), int)
    for worker in range(workers):
        shares = rng.dirichlet(np.full(LABELS, alpha))
        for row in range(rows):
            # A little of each label, in case all that have a share are used up.
            weights = (shares + 1e-12) * [bool(places) for places in left]
            label = rng.choice(LABELS, p=weights / weights.sum())
            drawn[worker, row] = left[label].pop()
    return drawn

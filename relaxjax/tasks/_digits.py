"""Handwritten digits: the 1797 real ones that come with scikit-learn, and an MLP.

Source: Alpaydin and Kaynak, "Optical recognition of handwritten digits", UCI, 1998.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from relaxjax._core.foreign._extra import extra
from relaxjax.tasks._arrays import of_arrays
from relaxjax.tasks._task import Task, cross_entropy, describe

with extra("the task digits needs"):
    from flax import nnx

STEPS, RATE = 400, 3e-3
HELD_OUT = 360  # a fifth, the same share of each digit
_SPLIT_SEED = 0  # one split for all runs, so that their accuracies can be compared


class Digits(NamedTuple):
    """Images of digits and their labels."""

    images: np.ndarray  # float32[rows, 64], from 0 to 1
    labels: np.ndarray  # int32[rows]


class Classifier(nnx.Module):
    """A perceptron with two hidden layers."""

    def __init__(self, *, width: int, rngs: nnx.Rngs):
        self.first = nnx.Linear(64, width, rngs=rngs)
        self.second = nnx.Linear(width, width, rngs=rngs)
        self.output = nnx.Linear(width, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits of the ten digits: float32[rows, 10]."""
        hidden = nnx.relu(self.first(images))
        return self.output(nnx.relu(self.second(hidden)))


def model(seed: int) -> tuple[Any, Any]:
    """The model without its params, and these."""
    graph, variables = nnx.split(Classifier(width=128, rngs=nnx.Rngs(seed)), nnx.Param)
    return graph, nnx.to_pure_dict(variables)  # no Variable of each leaf in each step


def digits(seed: int) -> Task:
    """The digits as a task; `seed` is that of the model's initial parameters."""
    train, held_out, pixels = _load()
    graph, params = model(seed)

    def loss(params, batch):
        return cross_entropy(nnx.merge(graph, params)(batch.images), batch.labels)

    def accuracy(params, rows):
        logits = nnx.merge(graph, params)(rows.images)
        return jnp.mean(logits.argmax(axis=-1) == rows.labels)

    return of_arrays(
        name="digits",
        metric_name="accuracy",
        params=params,
        loss=loss,
        metric=accuracy,
        train=train,
        test=held_out,
        steps=STEPS,
        batch_size=128,
        learning_rate=RATE,
        data=describe(pixels),
    )


def _load() -> tuple[Digits, Digits, list[bytes]]:
    """Training digits, held-out digits, and the raw bytes of both together."""
    from sklearn.datasets import load_digits  # which takes longer than all else
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    images = np.asarray(pixels, np.float32) / 16
    labels = np.asarray(labels, np.int32)
    rows = np.arange(len(labels))
    parts = train_test_split(
        rows, test_size=HELD_OUT, stratify=labels, random_state=_SPLIT_SEED
    )
    train, held_out = (Digits(images[part], labels[part]) for part in parts)
    raw = [np.asarray(part, np.uint8).tobytes() for part in (pixels, labels)]
    return train, held_out, raw

"""Digits (scikit-learn), by a flax.nnx model with BatchNorm and Dropout.

What the model has besides its params, batch statistics and the key of the dropout, is
the task's `state`: each worker has its own, with keys of its own.

relaxjax train --task examples/tasks/with_nnx.py
relaxjax compare examples/tasks/with_nnx.py --relaxation all_reduce \
    --relaxation gossip
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from relaxjax.tasks import Task, of_arrays


class Classifier(nnx.Module):
    """A perceptron with one hidden layer."""

    def __init__(self, rngs: nnx.Rngs):
        self.hidden = nnx.Linear(64, 128, rngs=rngs)
        self.norm = nnx.BatchNorm(128, momentum=0.9, rngs=rngs)
        self.dropout = nnx.Dropout(0.2, rngs=rngs)
        self.output = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits of the ten digits."""
        hidden = nnx.relu(self.norm(self.hidden(images)))
        return self.output(self.dropout(hidden))


def task(seed: int) -> Task:
    """The task of a seed, which decides the model's start and its keys."""
    graph, params, state = nnx.split(Classifier(nnx.Rngs(seed)), nnx.Param, ...)

    def loss(params, state, batch):
        model = nnx.merge(graph, params, state)
        logits = model(batch["image"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return losses.mean(), nnx.state(model, nnx.Not(nnx.Param))

    def accuracy(params, state, rows):
        model = nnx.merge(graph, params, state)
        model.eval()  # the running statistics, and nothing dropped
        return jnp.mean(model(rows["image"]).argmax(-1) == rows["label"])

    train, test = data()
    return of_arrays(
        name="digits_with_state",
        params=params,
        state=state,
        loss=loss,
        metric=accuracy,
        metric_name="accuracy",
        train=train,
        test=test,
        steps=200,
        batch_size=128,
        learning_rate=3e-3,
    )


def data():
    """Training and test rows, the same for all seeds."""
    images, labels = map(np.asarray, load_digits(return_X_y=True))
    parts = train_test_split(
        np.float32(images / 16), np.int32(labels), stratify=labels, random_state=0
    )
    x_train, x_test, y_train, y_test = parts
    return {"image": x_train, "label": y_train}, {"image": x_test, "label": y_test}

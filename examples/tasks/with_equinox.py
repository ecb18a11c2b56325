"""Breast cancer of 569 patients (scikit-learn), by an Equinox model.

An Equinox model holds functions beside its arrays: its arrays are the params, and the
loss closes over the rest.

relaxjax train --task examples/tasks/with_equinox.py
relaxjax compare examples/tasks/with_equinox.py --relaxation all_reduce \
    --relaxation power_sgd
"""

from importlib import import_module

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from relaxjax.tasks import Task, of_arrays

eqx = import_module("equinox")  # `import equinox as eqx`, where it is installed


def task(seed: int) -> Task:
    """The task of a seed, which decides the model's start."""
    key = jax.random.key(seed)
    model = eqx.nn.MLP(30, 2, width_size=32, depth=1, key=key)
    params, rest = eqx.partition(model, eqx.is_inexact_array)

    def logits(params, x):
        return jax.vmap(eqx.combine(params, rest))(x)

    def loss(params, batch):
        losses = optax.softmax_cross_entropy_with_integer_labels(
            logits(params, batch["x"]), batch["y"]
        )
        return losses.mean()

    def accuracy(params, rows):
        return jnp.mean(logits(params, rows["x"]).argmax(-1) == rows["y"])

    train, test = data()
    return of_arrays(
        name="breast_cancer_equinox",
        params=params,
        loss=loss,
        metric=accuracy,
        metric_name="accuracy",
        train=train,
        test=test,
        steps=200,
        batch_size=64,
        learning_rate=3e-3,
    )


def data():
    """Training and test rows, the same for all seeds."""
    x, y = map(np.asarray, load_breast_cancer(return_X_y=True))
    x = np.float32((x - x.mean(axis=0)) / x.std(axis=0))
    parts = train_test_split(x, np.int32(y), stratify=y, random_state=0)
    x_train, x_test, y_train, y_test = parts
    return {"x": x_train, "y": y_train}, {"x": x_test, "y": y_test}

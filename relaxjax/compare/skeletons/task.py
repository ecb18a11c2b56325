"""A task for `relaxjax compare`: replace the data and the model by your own."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from relaxjax.tasks import Task, of_arrays

WIDTH = 64


def task(seed: int) -> Task:
    """The task of a seed, which decides the model's start and nothing else."""
    train, test = data()
    first, second = jax.random.split(jax.random.key(seed))
    features = train["x"].shape[1]
    params = {
        "hidden": jax.random.normal(first, (features, WIDTH)) / features**0.5,
        "bias": jnp.zeros(WIDTH),
        "output": jax.random.normal(second, (WIDTH, 2)) / WIDTH**0.5,
    }
    return of_arrays(
        name="breast_cancer",
        params=params,  # any tree of arrays: flax.linen's, nnx.split's, equinox's
        loss=loss,
        metric=accuracy,
        metric_name="accuracy",
        better="higher",
        train=train,  # a tenth of it is kept for validation, unless you give some
        test=test,
        steps=200,
        batch_size=64,
        learning_rate=3e-3,
    )


def logits(params, x):
    """float32[rows, 2]."""
    return jax.nn.relu(x @ params["hidden"] + params["bias"]) @ params["output"]


def loss(params, batch):
    """float32[]: the mean over the rows of a batch."""
    chosen = jax.nn.log_softmax(logits(params, batch["x"]))
    return -jnp.mean(jnp.take_along_axis(chosen, batch["y"][:, None], axis=1))


def accuracy(params, rows):
    """float32[]: over all rows."""
    return jnp.mean(logits(params, rows["x"]).argmax(-1) == rows["y"])


def data():
    """Training and test rows, the same for all seeds."""
    x, y = map(np.asarray, load_breast_cancer(return_X_y=True))
    parts = train_test_split(x, y, test_size=0.25, stratify=y, random_state=0)
    x_train, x_test, y_train, y_test = map(np.asarray, parts)
    middle, width = x_train.mean(0), x_train.std(0)
    return [
        {"x": np.float32((x - middle) / width), "y": np.int32(y)}
        for x, y in ((x_train, y_train), (x_test, y_test))
    ]

"""A task: put your own data, model, loss and metric in the places of these."""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from relaxjax.tasks import Task, of_arrays


def task(seed: int) -> Task:
    """What is compared. The seed decides the model's start, and nothing else."""
    train, test = data()
    first, second = jax.random.split(jax.random.key(seed))
    features, width = train["x"].shape[1], 64
    params = {  # any tree of float arrays, as from flax.linen, flax.nnx or equinox
        "hidden": jax.random.normal(first, (features, width)) / features**0.5,
        "bias": jnp.zeros(width),
        "output": jax.random.normal(second, (width, 2)) / width**0.5,
    }
    return of_arrays(
        name="breast_cancer",
        params=params,
        loss=loss,  # what training makes small
        metric=accuracy,  # what is reported
        metric_name="accuracy",
        better="higher",  # or "lower"
        train=train,  # a tenth of it chooses settings, or what you give as validation=
        test=test,  # never chosen by
        steps=200,
        batch_size=64,  # rows of a step, over all workers
        learning_rate=3e-3,  # of AdamW, or of what you give as optimizer=
    )


def data():
    """Training and test rows: the first axis of each array counts the examples."""
    x, y = map(np.asarray, load_breast_cancer(return_X_y=True))
    parts = train_test_split(x, np.int32(y), stratify=y, random_state=0)
    x, x_test, y, y_test = map(np.asarray, parts)
    x, x_test = (np.float32((part - x.mean(0)) / x.std(0)) for part in (x, x_test))
    return {"x": x, "y": y}, {"x": x_test, "y": y_test}


def logits(params, x):
    """The model: float32[rows, 2]."""
    return jax.nn.relu(x @ params["hidden"] + params["bias"]) @ params["output"]


def loss(params, batch):
    """One number: the mean over the rows of a batch."""
    chosen = jax.nn.log_softmax(logits(params, batch["x"]))
    return -jnp.mean(jnp.take_along_axis(chosen, batch["y"][:, None], axis=1))


def accuracy(params, rows):
    """One number: over all rows of the validation or the test part."""
    return jnp.mean(logits(params, rows["x"]).argmax(-1) == rows["y"])

"""Diabetes of 442 patients (scikit-learn), by a dict of arrays.

relaxjax train --task examples/tasks/plain.py
relaxjax compare examples/tasks/plain.py --relaxation all_reduce \
    --relaxation local_sgd
"""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from relaxjax.tasks import Task, of_arrays


def task(seed: int) -> Task:
    """The task of a seed, which decides the model's start."""
    rng = np.random.default_rng(seed)
    params = {
        "hidden": np.float32(rng.normal(0, 0.3, (10, 32))),
        "bias": np.zeros(32, np.float32),
        "output": np.float32(rng.normal(0, 0.2, 32)),
    }
    train, test = data()
    return of_arrays(
        name="diabetes",
        params=params,
        loss=squared_error,
        metric=squared_error,
        metric_name="squared_error",
        better="lower",
        train=train,
        test=test,
        steps=200,
        batch_size=64,
        learning_rate=1e-2,
    )


def squared_error(params, rows):
    """float32[]: the mean over the rows, where 1 is what the mean patient has."""
    hidden = jax.nn.relu(rows["x"] @ params["hidden"] + params["bias"])
    return jnp.mean((hidden @ params["output"] - rows["y"]) ** 2)


def data():
    """Training and test rows, the same for all seeds."""
    x, y = map(np.asarray, load_diabetes(return_X_y=True))
    x, y = x / x.std(axis=0), (y - y.mean()) / y.std()
    parts = train_test_split(np.float32(x), np.float32(y), random_state=0)
    x_train, x_test, y_train, y_test = parts
    return {"x": x_train, "y": y_train}, {"x": x_test, "y": y_test}

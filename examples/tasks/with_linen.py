"""Wines from three growers (scikit-learn, 178 rows), by a flax.linen model.

relaxjax train --task examples/tasks/with_linen.py
relaxjax compare examples/tasks/with_linen.py --relaxation all_reduce \
    --relaxation diloco
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

from relaxjax.tasks import Task, of_arrays


class Classifier(nn.Module):
    """A perceptron with one hidden layer."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits of the three growers."""
        return nn.Dense(3)(nn.relu(nn.Dense(32)(x)))


model = Classifier()
forward = jax.jit(model.apply)


def task(seed: int) -> Task:
    """The task of a seed, which decides the model's start."""
    train, test = data()
    return of_arrays(
        name="wine",
        params=model.init(jax.random.key(seed), train["x"][:1])["params"],
        loss=loss,
        metric=accuracy,
        metric_name="accuracy",
        train=train,
        test=test,
        steps=100,
        batch_size=32,
        learning_rate=3e-3,
    )


def loss(params, batch):
    """float32[]: the mean over the rows."""
    logits = forward({"params": params}, batch["x"])
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["y"])
    return losses.mean()


def accuracy(params, rows):
    """float32[]: the share of rows whose grower is found."""
    logits = forward({"params": params}, rows["x"])
    return jnp.mean(logits.argmax(-1) == rows["y"])


def data():
    """Training and test rows, the same for all seeds."""
    x, y = map(np.asarray, load_wine(return_X_y=True))
    x = np.float32((x - x.mean(axis=0)) / x.std(axis=0))
    parts = train_test_split(x, np.int32(y), stratify=y, random_state=0)
    x_train, x_test, y_train, y_test = parts
    return {"x": x_train, "y": y_train}, {"x": x_test, "y": y_test}

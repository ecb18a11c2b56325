"""One of eight workers is wrong: what each rule of `relaxjax.merges` makes of it.

Workers of a DiLoCo run on digits see the same data, or their own labels mostly. Then
the updates of one of them are multiplied by -10, or are not finite.
"""

import sys
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import relaxjax
from relaxjax import merges
from relaxjax.tasks import digits

WORKERS, EVERY = 8, 10
RULES: dict[str, Any] = {
    "mean": "mean",
    "rda": "rda",
    "clipped()": merges.clipped(),
    "rda()": merges.rda(),
    "median()": merges.median(),
    "trimmed(1)": merges.trimmed(1),
    "geometric_median()": merges.geometric_median(),
    "centered_clip(0.5)": merges.centered_clip(0.5),
    "nearest(1, median())": merges.nearest(1, merges.median()),
}
CASES = {
    "same data": (False, 1.0),
    "own labels": (True, 1.0),
    "x -10": (False, -10.0),
    "NaN": (False, float("nan")),
}


def multiplied(factor: float) -> optax.GradientTransformation:
    """Worker 0's updates times a factor."""

    def update(updates, state, params=None):
        del params
        times = jnp.where(jax.lax.axis_index("data") == 0, factor, 1.0)
        return jax.tree.map(lambda u: times * u, updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def batches(task: Any, seed: int, by_label: bool) -> Iterator[Any]:
    """Whole batches; sorted by label, each worker gets rows of one or two digits."""
    for batch in task.batches(seed, 16 * WORKERS):
        order = np.argsort(batch.labels) if by_label else slice(None)
        yield jax.tree.map(lambda x, order=order: x[order], batch)


def accuracy(rule: Any, by_label: bool, factor: float, steps: int, seed: int) -> float:
    """Held-out accuracy of the common model, as a worker that is right has it."""
    task = digits(seed)
    inner = optax.chain(optax.adamw(2e-3), multiplied(factor))
    outer = optax.sgd(0.7, momentum=0.5, nesterov=True)
    tx = relaxjax.diloco(inner, "data", EVERY, merge=rule, outer=outer)

    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(task.loss)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    mesh = relaxjax.emulate(WORKERS)
    params, opt_state = relaxjax.init(tx, task.params, mesh)
    step = relaxjax.data_parallel(train_step, mesh)
    rows = batches(task, seed, by_label)
    for _ in range(steps):
        params, opt_state, _ = step(params, opt_state, next(rows))
    return float(task.metric(jax.tree.map(lambda x: x[1], params)))


def main(steps: int = 200, seeds: int = 1) -> dict[str, list[float]]:
    """Trains by each rule; prints and returns accuracies in percent."""
    found = {}
    print(f"{'':22}" + "".join(f"{case:>12}" for case in CASES))
    for name, rule in RULES.items():
        runs = [
            [100 * accuracy(rule, *case, steps, seed) for seed in range(seeds)]
            for case in CASES.values()
        ]
        found[name] = [float(np.mean(run)) for run in runs]
        print(f"{name:22}" + "".join(f"{x:12.1f}" for x in found[name]), flush=True)
    return found


if __name__ == "__main__":
    main(seeds=int(sys.argv[1]) if sys.argv[1:] else 1)

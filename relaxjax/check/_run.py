"""Runs transformations on chosen gradients, and watches what comes out.

Each worker has gradients of its own; after each step the models, updates and states of
all workers are looked at from outside, as numpy arrays.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from relaxjax.workers import Emulation, data_parallel, init, to_workers

Tree = Any
WORKERS = 4
STEPS = 6
SHAPES: Mapping[str, tuple[int, ...]] = {"bias": (7,), "kernel": (6, 5)}


class Moment(NamedTuple):
    """What went into a step and came out of it; all arrays are [n, ...].

    Attributes:
      gradients: the gradients that went in.
      updates: the updates that came out.
      params: the params after the updates.
      state: the transformation's state.
    """

    gradients: Tree
    updates: Tree
    params: Tree
    state: Tree


def start() -> Tree:
    """The params that all workers begin with, float32."""
    rng = np.random.default_rng(0)
    return {k: rng.normal(size=v).astype(np.float32) for k, v in SHAPES.items()}


def gradients(kind: str, n: int, steps: int = STEPS) -> list[Tree]:
    """Each step's gradients of n workers, leaves float32[n, ...].

    In `"zeros"`, half of all elements are zero; the other kinds are `"integers"` and
    `"gauss"`.
    """
    rng = np.random.default_rng(1)

    def one(shape):
        x = rng.normal(size=(n, *shape))
        if kind == "zeros":
            x = x * (rng.random(size=shape) < 0.5)
        return (np.round(3 * x) if kind == "integers" else x).astype(np.float32)

    return [{k: one(v) for k, v in SHAPES.items()} for _ in range(steps)]


KINDS = ("zeros", "integers", "gauss")


def moments(
    tx: optax.GradientTransformation,
    steps: Sequence[Tree],
    mesh: Mesh | Emulation,
    params: Tree | None = None,
) -> Iterator[Moment]:
    """Takes a step with each of the gradients (leaves [n, ...]), from common params."""
    params = start() if params is None else params

    def step(params, state, last, batch):
        del last
        gradient = jax.tree.map(lambda x: x[0], batch)
        updates, state = tx.update(gradient, state, params)
        after = optax.apply_updates(params, updates)
        moved = jax.tree.map(lambda u, p: u.astype(p.dtype), updates, params)
        return after, state, moved, {}

    run = data_parallel(step, mesh)
    now, state = init(tx, params, mesh, reduced_in_step=True)
    last = to_workers(jax.tree.map(jnp.zeros_like, params), mesh)
    for gradient in steps:
        now, state, last, _ = run(now, state, last, gradient)
        updates, after = jax.tree.map(np.asarray, (last, now))
        yield Moment(gradient, updates, after, state)


def flat(tree: Tree) -> np.ndarray:
    """float64[n, d] of leaves [n, ...], in their order."""
    leaves = [np.asarray(x, np.float64) for x in jax.tree.leaves(tree)]
    return np.concatenate([x.reshape(len(x), -1) for x in leaves], axis=1)


def residuals(state: Any) -> list[Tree]:
    """The fields called `residual`, anywhere in a state."""
    leaves: dict[Any, list[jax.Array]] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        names = [getattr(key, "name", None) for key in path]
        if "residual" in names:
            leaves.setdefault(path[: names.index("residual")], []).append(leaf)
    return list(leaves.values())

"""Collectives of activations in plain NumPy, and the mappings that they run under."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

from relaxjax import activations
from tests.helpers import mesh_of

AXIS = "model"


class Case(NamedTuple):
    """One collective.

    Attributes:
      shape: of a worker's input, by the number of workers.
      ours: `ours(x, **codes)`, inside the axis.
      lax: the same by jax.lax.
      forward: all workers' outputs from their stacked inputs, in NumPy.
      backward: the transpose.
      equal: "in" where all inputs are equal, "out" where all outputs are.
      adds: whether the forward and the backward leg add up.
    """

    shape: Callable[[int], tuple[int, ...]]
    ours: Callable[..., Any]
    lax: Callable[[Any], Any]
    forward: Callable[[np.ndarray], np.ndarray]
    backward: Callable[[np.ndarray], np.ndarray]
    equal: str = ""
    adds: tuple[bool, bool] = (False, False)


def gather_last(x: np.ndarray) -> np.ndarray:
    return np.stack([np.concatenate([*x], axis=-1)] * len(x))


def scatter_last(x: np.ndarray) -> np.ndarray:
    return np.stack(np.split(x.sum(axis=0), len(x), axis=-1))


def gather_first(x: np.ndarray) -> np.ndarray:
    return np.stack([np.concatenate([*x])] * len(x))


def scatter_first(x: np.ndarray) -> np.ndarray:
    return np.stack(np.split(x.sum(axis=0), len(x)))


def swap(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(0, 1)


def split_rows_join_last(x: np.ndarray) -> np.ndarray:
    n = len(x)
    cut = [np.split(row, n) for row in x]
    return np.stack(
        [np.concatenate([cut[j][i] for j in range(n)], -1) for i in range(n)]
    )


def split_last_join_rows(x: np.ndarray) -> np.ndarray:
    n = len(x)
    cut = [np.split(row, n, axis=-1) for row in x]
    return np.stack([np.concatenate([cut[j][i] for j in range(n)]) for i in range(n)])


def onward(x: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros_like(x[:1]), x[:-1]])


def summed(x: np.ndarray) -> np.ndarray:
    return np.stack([x.sum(axis=0)] * len(x))


def chain() -> list[tuple[int, int]]:
    return [(i, i + 1) for i in range(lax.axis_size(AXIS) - 1)]


CASES = {
    "all_gather": Case(
        lambda n: (3, 40),
        lambda x, **codes: activations.all_gather(x, AXIS, tiled=True, **codes),
        lambda x: lax.all_gather(x, AXIS, tiled=True),
        gather_first,
        scatter_first,
        adds=(False, True),
    ),
    "all_gather, of features": Case(
        lambda n: (3, 40),
        lambda x, **codes: activations.all_gather(
            x, AXIS, axis=-1, tiled=True, **codes
        ),
        lambda x: lax.all_gather(x, AXIS, axis=1, tiled=True),
        gather_last,
        scatter_last,
        adds=(False, True),
    ),
    "reduce_scatter": Case(
        lambda n: (2 * n, 40),
        lambda x, **codes: activations.reduce_scatter(x, AXIS, tiled=True, **codes),
        lambda x: lax.psum_scatter(x, AXIS, tiled=True),
        scatter_first,
        gather_first,
        adds=(True, False),
    ),
    "reduce_scatter, of features": Case(
        lambda n: (2, 36 * n),
        lambda x, **codes: activations.reduce_scatter(
            x, AXIS, scatter_dimension=-1, tiled=True, **codes
        ),
        lambda x: lax.psum_scatter(x, AXIS, scatter_dimension=1, tiled=True),
        scatter_last,
        gather_last,
        adds=(True, False),
    ),
    "all_reduce": Case(
        lambda n: (5, 40),
        lambda x, **codes: activations.all_reduce(x, AXIS, **codes),
        lambda x: lax.psum(x, AXIS),
        summed,
        lambda g: g,
        equal="out",
        adds=(True, False),
    ),
    "copy": Case(
        lambda n: (5, 40),
        lambda x, **codes: activations.copy(x, AXIS, **codes),
        lambda x: lax.pcast(x, AXIS, to="varying"),
        lambda x: x,
        summed,
        equal="in",
        adds=(False, True),
    ),
    "all_to_all": Case(
        lambda n: (n, 2, 40),
        lambda x, **codes: activations.all_to_all(x, AXIS, 0, 0, **codes),
        lambda x: lax.all_to_all(x, AXIS, 0, 0),
        swap,
        swap,
    ),
    "all_to_all, to another place": Case(
        lambda n: (n, 2, 40),
        lambda x, **codes: activations.all_to_all(x, AXIS, 0, 1, **codes),
        lambda x: jnp.moveaxis(lax.all_to_all(x, AXIS, 0, 0), 0, 1),
        lambda x: np.moveaxis(swap(x), 1, 2),
        lambda g: swap(np.moveaxis(g, 2, 1)),
    ),
    "all_to_all, tokens for features": Case(
        lambda n: (2 * n, 40),
        lambda x, **codes: activations.all_to_all(x, AXIS, 0, 1, tiled=True, **codes),
        lambda x: lax.all_to_all(x, AXIS, 0, 1, tiled=True),
        split_rows_join_last,
        split_last_join_rows,
    ),
    "send": Case(
        lambda n: (3, 40),
        lambda x, **codes: activations.send(x, AXIS, chain(), **codes),
        lambda x: lax.ppermute(x, AXIS, chain()),
        onward,
        lambda g: onward(g[::-1])[::-1],
    ),
}


def ints(n: int, shape: tuple[int, ...], equal: bool, seed: int = 0) -> np.ndarray:
    """Stacked float32 of small integers: sums of them are exact in any order."""
    drawn = np.random.default_rng(seed).integers(-30, 30, (n, *shape))
    return (drawn[:1].repeat(n, 0) if equal else drawn).astype(np.float32)


def inputs(case: Case, n: int, draw: Any = ints) -> tuple[np.ndarray, np.ndarray]:
    """Stacked inputs and cotangents."""
    x = draw(n, case.shape(n), case.equal == "in")
    shape = case.forward(x).shape[1:]
    return x, draw(n, shape, case.equal == "out", seed=1)


def pulled(fn: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """fn's value, and what its transpose makes of g."""

    def both(x: Any, g: Any) -> Any:
        y, pull = jax.vjp(fn, x)
        return y, *pull(g)

    return both


def by_vmap(fn: Callable[[Any], Any], case: Case, x: Any, g: Any) -> list[np.ndarray]:
    return [np.asarray(a) for a in jax.jit(jax.vmap(pulled(fn), axis_name=AXIS))(x, g)]


def on_mesh(fn: Callable[[Any], Any], case: Case, n: int, typed: bool) -> Any:
    """The jitted program; equal inputs are replicated if types are tracked."""
    places = [P(AXIS), P(AXIS)]
    if typed:
        places = [P() if case.equal == end else P(AXIS) for end in ("in", "out")]
    outs = (P(AXIS), P(AXIS))

    def each(x: Any, g: Any) -> Any:
        return jax.tree.map(lambda a: a[None], pulled(fn)(x[0], g[0]))

    mapped = jax.shard_map(
        each,
        mesh=mesh_of(n, AXIS),
        in_specs=tuple(places),
        out_specs=outs,
        check_vma=typed,
    )
    return jax.jit(mapped)


def by_mesh(fn: Callable[[Any], Any], case: Case, x: Any, g: Any) -> list[np.ndarray]:
    return [np.asarray(a) for a in on_mesh(fn, case, len(x), typed=False)(x, g)]


def by_typed_mesh(fn: Any, case: Case, x: Any, g: Any) -> list[np.ndarray]:
    n = len(x)
    x = x[:1] if case.equal == "in" else x
    g = g[:1] if case.equal == "out" else g
    return [np.asarray(a) for a in on_mesh(fn, case, n, typed=True)(x, g)]


MAPPINGS = {"vmap": by_vmap, "mesh": by_mesh, "typed mesh": by_typed_mesh}

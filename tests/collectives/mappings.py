"""One collective under each mapping: what every worker receives, stacked."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from jax.sharding import PartitionSpec as P

from tests.helpers import mesh_of

Collective = Callable[[jax.Array, str], jax.Array]


def by_vmap(collective: Collective, blocks: np.ndarray) -> np.ndarray:
    mapped = jax.vmap(lambda x: collective(x, "data"), axis_name="data")
    return np.asarray(jax.jit(mapped)(blocks))


def by_pmap(collective: Collective, blocks: np.ndarray) -> np.ndarray:
    devices = jax.devices()[: len(blocks)]
    mapped = jax.pmap(
        lambda x: collective(x, "data"), axis_name="data", devices=devices
    )
    return np.asarray(mapped(blocks))


def lower_on_mesh(collective: Collective, blocks: Any) -> jax.stages.Lowered:
    """The program of check_vma=False."""
    return mapped_on_mesh(collective, len(blocks)).lower(blocks)


def by_mesh(collective: Collective, blocks: np.ndarray) -> np.ndarray:
    return np.asarray(mapped_on_mesh(collective, len(blocks))(blocks))


def mapped_on_mesh(collective: Collective, n: int) -> Any:
    return jax.jit(
        jax.shard_map(
            lambda x: collective(x[0], "data")[None],
            mesh=mesh_of(n),
            in_specs=P("data"),
            out_specs=P("data"),
            check_vma=False,
        )
    )


def by_typed_mesh(collective: Collective, blocks: np.ndarray) -> np.ndarray:
    """Under check_vma=True; out_specs=P() demands a type that is equal on all."""
    out = typed_on_mesh(collective, len(blocks))(blocks)
    return np.stack([np.asarray(out)] * len(blocks))


def typed_on_mesh(collective: Collective, n: int) -> Any:
    return jax.jit(
        jax.shard_map(
            lambda x: collective(x[0], "data"),
            mesh=mesh_of(n),
            in_specs=P("data"),
            out_specs=P(),
        )
    )


MAPPINGS = {
    "vmap": by_vmap,
    "pmap": by_pmap,
    "mesh": by_mesh,
    "typed mesh": by_typed_mesh,
}


def as_transformation(collective: Any, axis_name: Any) -> Any:
    """For `wire_bytes`."""

    def update(updates, state, params=None):
        del params
        return collective(updates, axis_name), state

    return optax.GradientTransformation(optax.identity().init, update)


def draw(n: int, shape: tuple[int, ...], dtype: Any, seed: int = 0) -> np.ndarray:
    return (4 * np.random.default_rng(seed).normal(size=(n, *shape))).astype(dtype)


def assert_same(out: np.ndarray, expected: np.ndarray) -> None:
    """On every worker the expected values, and bitwise the same ones."""
    assert out.dtype == expected.dtype
    assert out.shape[1:] == expected.shape
    assert len({row.tobytes() for row in out}) == 1
    # Narrow floats have no comparison of their own in numpy's testing.
    kind = np.complex128 if np.iscomplexobj(expected) else np.float64
    np.testing.assert_array_equal(out[0].astype(kind), expected.astype(kind))

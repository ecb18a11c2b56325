"""Leaves of random sizes, some sharded over a second axis of the mesh, and copies."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax

WORKERS, PARTS, STEPS = 4, 2, 4
NAMES = ("data", "model")
SPECS = {
    "across": P(None, "model"),
    "bias": P(),
    "down": P("model"),
    "part": P("model"),
    "whole": P(),
}


def mesh_of(kind: AxisType) -> Any:
    devices = jax.devices()[: WORKERS * PARTS]
    return jax.make_mesh((WORKERS, PARTS), NAMES, (kind, kind), devices=devices)


def drawn(seed: int) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """Params, and each worker's gradients [n, ...] of some steps.

    Of odd seeds, parts of leaves have the shapes of whole ones.
    """
    rng = np.random.default_rng(seed)
    a, b, c, d = (int(x) for x in rng.integers(3, 20, 4))
    shapes = {
        "across": (a, 2 * b),
        "bias": (d,),
        "down": (2 * c, b),
        "part": (2 * a,),
        "whole": (c, a),
    }
    if seed % 2:
        shapes |= {"bias": (a,), "whole": (a, b)}

    def normal(*lead: int) -> dict[str, np.ndarray]:
        return {
            k: rng.normal(size=(*lead, *s)).astype(np.float32)
            for k, s in shapes.items()
        }

    return normal(), [normal(WORKERS) for _ in range(STEPS)]


def placed(params: Any, mesh: Any) -> Any:
    return jax.tree.map(
        lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec)), params, SPECS
    )


def step_of(tx: Any) -> Any:
    """A worker's step, of the gradients that it is given."""

    def step(params, state, batch):
        grads = jax.tree.map(lambda g: g[0], batch)
        updates, state = tx.update(grads, state, params)
        new = jax.tree.map(lambda p, u: (p + u).astype(p.dtype), params, updates)
        return new, state, {}

    return step


def of_workers(tx: Any, seed: int) -> Iterator[Any]:
    """Params and state after each step of `data_parallel`."""
    mesh = mesh_of(AxisType.Auto)
    params, batches = drawn(seed)

    run = relaxjax.data_parallel(step_of(tx), mesh, axis_name="data")
    now = relaxjax.init(tx, placed(params, mesh), mesh, axis_name="data")
    for batch in batches:
        *now, _ = run(*now, batch)
        yield now


def in_plain_jit(tx: Any, seed: int, restored: int | None = None) -> Iterator[Any]:
    """Params and state after each step of a plain `jit`, gradients unreduced.

    Before the step `restored` the state goes through NumPy, as in a checkpoint.
    """
    mesh = mesh_of(AxisType.Explicit)
    params, batches = drawn(seed)

    def weighted(params, batch):
        """The gradient by w is the sum over workers of batch / n."""

        def one(w, g):
            letters = "ij"[: w.ndim]
            how = f"{letters},n{letters}->n"
            return jnp.sum(jnp.einsum(how, w, g, out_sharding=P("data"))) / WORKERS

        return sum(jax.tree.leaves(jax.tree.map(one, params, batch)))

    @jax.jit
    def step(params, state, batch):
        grads = jax.grad(weighted)(relaxjax.unreduced(params, "data"), batch)
        updates, state = tx.update(grads, state, params)
        return jax.tree.map(jnp.add, params, updates), state

    with jax.set_mesh(mesh):
        params = placed(params, mesh)
        state = tx.init(params)
        for number, batch in enumerate(batches):
            lie = {k: P("data", *spec) for k, spec in SPECS.items()}
            batch = jax.tree.map(jax.device_put, batch, lie)
            if number == restored:
                state = jax.tree.map(
                    lambda x: jax.device_put(np.asarray(x), x.sharding), state
                )
            params, state = step(params, relaxjax.advance_phases(state), batch)
            jax.block_until_ready(params)
            yield params, state


def apart(tree: Any) -> dict[str, float]:
    """The leaves of which a device has another copy than the first, by how much."""
    found = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        parts: dict[str, list[np.ndarray]] = {}
        for shard in leaf.addressable_shards:
            parts.setdefault(str(shard.index), []).append(np.asarray(shard.data))
        copies = [(np.float64(one[0]), x) for one in parts.values() for x in one]
        if any(not np.array_equal(a, x, equal_nan=True) for a, x in copies):
            gap = max(np.abs(a - x).max() for a, x in copies)
            found[jax.tree_util.keystr(path)] = float(gap)
    return found

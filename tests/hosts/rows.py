"""Trains some of the relaxations; run in several processes, or by a test."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import relaxjax
from relaxjax import compression, hosts, topology

STEPS, ROWS = 6, 8


def sgd() -> optax.GradientTransformation:
    return optax.sgd(0.05, momentum=0.9)


def reduced(**how: Any) -> optax.GradientTransformation:
    return optax.chain(relaxjax.all_reduce("data", **how), sgd())


def transformations(n: int) -> dict[str, optax.GradientTransformation]:
    coded = compression.error_feedback(compression.sign())
    ring = topology.ring(n)
    return {
        "psum": reduced(),
        "ring": reduced(algorithm="ring"),
        "bidirectional_ring": reduced(algorithm="bidirectional_ring"),
        "halving_doubling": reduced(algorithm="halving_doubling"),
        "tree": reduced(algorithm="tree"),
        "two_shot": reduced(algorithm="two_shot"),
        "one_shot": reduced(algorithm="one_shot"),
        "signs": reduced(algorithm="two_shot", compressor=coded),
        "gossip": optax.chain(sgd(), relaxjax.gossip("data", ring)),
        "diloco": relaxjax.diloco(sgd(), "data", 2),
        "parameter_server": relaxjax.parameter_server(sgd(), "data"),
    }


def params() -> dict[str, Any]:
    key = jax.random.key(0)
    return {"b": jnp.zeros(5), "w": jax.random.normal(key, (7, 5))}


def batches(part: int, parts: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """This process's rows of each batch."""
    rng = np.random.default_rng(1)
    rows = ROWS // parts
    for _ in range(STEPS):
        x, y = rng.normal(size=(ROWS, 7)), rng.normal(size=(ROWS, 5))
        mine = slice(part * rows, (part + 1) * rows)
        yield x[mine].astype(np.float32), y[mine].astype(np.float32)


def loss(p: Any, batch: Any) -> jax.Array:
    x, y = batch
    return jnp.mean((jnp.tanh(x @ p["w"] + p["b"]) - y) ** 2)


def trained(tx: Any, mesh: Any, part: int, parts: int) -> dict[str, Any]:
    """Losses, spread and the consensus model after some steps."""

    def train_step(p: Any, state: Any, batch: Any) -> tuple[Any, Any, Any]:
        value, grads = jax.value_and_grad(loss)(p, batch)
        updates, state = tx.update(grads, state, p)
        return optax.apply_updates(p, updates), state, {"loss": value}

    step = relaxjax.data_parallel(train_step, mesh)
    p, state = relaxjax.init(tx, params(), mesh)
    losses = []
    for batch in batches(part, parts):
        p, state, metrics = step(p, state, batch)
        losses.append(float(metrics["loss"]))
    model = {k: np.asarray(v).tolist() for k, v in relaxjax.consensus(p).items()}
    return {"losses": losses, "spread": relaxjax.spread(p), "model": model}


def skipping(mesh: Any, part: int, parts: int) -> list[str]:
    """Steps and workers where a NaN left a trace after the step was skipped."""
    tx = relaxjax.skip_nonfinite(transformations(mesh.size)["signs"], "data")

    def train_step(p: Any, state: Any, batch: Any) -> tuple[Any, Any, Any]:
        grads = jax.grad(loss)(p, batch)
        updates, state = tx.update(grads, state, p)
        return optax.apply_updates(p, updates), state, {}

    step = relaxjax.data_parallel(train_step, mesh)
    start, data = relaxjax.init(tx, params(), mesh), list(batches(part, parts))[:3]

    def after(batches: list[Any]) -> list[bytes]:
        state = start
        for batch in batches:
            *state, _ = step(*state, batch)
        relaxjax.require_replicas(state[0], "params")
        leaves = jax.tree.leaves((state[0], state[1].inner_state))
        return [data.tobytes() for x in leaves for data in local_of(x)]

    traces = []
    for bad in range(len(data)):
        expected = after(data[:bad] + data[bad + 1 :])
        for worker in range(mesh.size):
            x, y = data[bad][0].copy(), data[bad][1]
            row = worker * ROWS // mesh.size - part * len(x)
            if 0 <= row < len(x):
                x[row, 2] = np.nan
            if after([*data[:bad], (x, y), *data[bad + 1 :]]) != expected:
                traces.append(f"step {bad} of worker {worker}")
    return traces


def local_of(x: jax.Array) -> list[np.ndarray]:
    """This process's shards, by worker."""
    shards = sorted(x.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    return [np.asarray(shard.data) for shard in shards]


def broken(mesh: Any, part: int) -> str:
    """The error where the last process holds other replicas."""
    p, _ = relaxjax.init(sgd(), params(), mesh)
    last = part == jax.process_count() - 1

    def shards(x: jax.Array) -> jax.Array:
        data = [shard.data for shard in x.addressable_shards]
        data = [jnp.nextafter(one, 9.0) if last else one for one in data]
        return jax.make_array_from_single_device_arrays(x.shape, x.sharding, data)

    p["w"] = shards(p["w"])
    try:
        relaxjax.require_replicas(p, "params")
    except relaxjax.ReplicaError as error:
        return str(error)
    return ""


def main(out: Path) -> None:
    team = hosts.join()
    with hosts.Watch(team):
        mesh = jax.make_mesh((jax.device_count(),), ("data",))
        mine = team.process_id, len(team.members)
        rows = transformations(mesh.size)
        results: dict[str, Any] = {
            name: trained(tx, mesh, *mine) for name, tx in rows.items()
        }
        results["skipping"] = skipping(mesh, *mine)
        results["broken"] = broken(mesh, team.process_id)
    (out / f"{team.process_id}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

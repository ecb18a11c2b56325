"""Exhibits of means: who counts, how often, what is sent, and what keeps the mean."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import compression as codes
from relaxjax import topology
from tests.helpers import mesh_of
from tests.museum.exhibit import Exhibit, below, near, on_workers, once, steps

ROWS = np.array([5.0, 1.0, 1.0, 1.0])  # of each worker's batch
OF_ROWS = np.array([1.0, 9.0, 9.0, 9.0])  # mean gradient of each worker's rows


def our_uneven() -> float:
    tx = relaxjax.all_reduce("data")
    found = once(tx, OF_ROWS.astype(np.float32), weight=ROWS.astype(np.float32))
    return float(found[0])


def our_absent() -> float:
    tx = relaxjax.all_reduce("data")
    present = np.array([1, 1, 1, 0], np.float32)
    return float(once(tx, present, weight=present)[0])


def wrong_absent_nan() -> float:
    gradients, present = np.array([1, 1, 1, np.nan]), np.array([1, 1, 1, 0])
    return float((gradients * present).sum() / present.sum())


def our_absent_nan() -> float:
    tx = relaxjax.all_reduce("data")
    gradients = np.array([1, 1, 1, np.nan], np.float32)
    return float(once(tx, gradients, weight=np.array([1, 1, 1, 0], np.float32))[0])


def loss(w: Any, x: Any) -> Any:
    return jnp.mean(w * x)


def wrong_replicated() -> float:
    """A mean of gradients that autodiff has added up already."""

    def step(w: Any, x: Any) -> Any:
        return lax.pmean(jax.grad(loss)(w, x), "data")

    specs = {"in_specs": (P(), P("data")), "out_specs": P()}
    mapped = jax.shard_map(step, mesh=mesh_of(4), check_vma=True, **specs)
    return float(jax.jit(mapped)(jnp.ones(()), jnp.ones(4)))


def our_replicated() -> float:
    mesh, tx = mesh_of(4), optax.chain(relaxjax.all_reduce("data"), optax.sgd(1.0))

    def train_step(w: Any, state: Any, x: Any) -> Any:
        updates, state = tx.update(jax.grad(loss)(w, x), state, w)
        return optax.apply_updates(w, updates), state, {}

    w, state = relaxjax.init(tx, jnp.ones(()), mesh)
    w, *_ = relaxjax.data_parallel(train_step, mesh)(w, state, jnp.ones(4))
    return float(1 - np.asarray(w)[0])


def sent(tx: Any, count: int) -> float:
    """Bytes in so many steps, as a multiple of one all-reduce."""
    params, mesh = jnp.zeros(1000), relaxjax.emulate(4)
    one = relaxjax.wire_bytes(relaxjax.all_reduce("data"), params, mesh)
    return relaxjax.wire_bytes(tx, params, mesh, steps=count) / one


def wrong_mini_steps() -> float:
    many = optax.MultiSteps(optax.sgd(0.1), 4).gradient_transformation()
    return sent(optax.chain(relaxjax.all_reduce("data"), many), 4)


def our_mini_steps() -> float:
    inner = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1))
    return sent(relaxjax.accumulate(inner, 4), 4)


def wrong_where() -> float:
    def update(updates: Any, state: Any, params: Any = None) -> Any:
        mean = lax.pmean(updates, "data")
        return jnp.where(state % 8 == 7, mean, updates), state + 1

    def init(params: Any) -> Any:
        return jnp.zeros((), jnp.int32)

    return sent(optax.GradientTransformation(init, update), 8)


def our_accumulated_mean() -> float:
    tx = relaxjax.accumulate(relaxjax.all_reduce("data"), 4)
    return float(steps(tx, np.ones((2, 4), np.float32))[0, -1])


STAR = np.array([[0, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]], float)
START = np.array([0.0, 4.0, 4.0, 4.0])


def wrong_degrees() -> float:
    links = STAR + np.eye(4)
    weights = links / links.sum(axis=1, keepdims=True)
    return float(np.linalg.matrix_power(weights, 60) @ START @ np.full(4, 0.25))


def mixed(tx: Any, start: np.ndarray, count: int) -> np.ndarray:
    """Models after rounds of gossip alone."""

    def run(x: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            x, state = carry
            updates, state = tx.update(jnp.zeros_like(x), state, x)
            return (x + updates, state), None

        return lax.scan(step, (x, tx.init(x)), length=count)[0][0]

    return on_workers(run, start.astype(np.float32))


def our_degrees() -> float:
    tx = relaxjax.gossip("data", topology.metropolis(STAR, name="star"))
    return float(mixed(tx, START, 60).mean())


MODELS = np.random.default_rng(3).normal(size=(4, 256))


def wrong_own_noise() -> float:
    """Each receiver decodes with noise of its own."""
    x, rng = MODELS.copy(), np.random.default_rng(1)

    def coded(v: np.ndarray) -> np.ndarray:
        return np.abs(v).max() / 7 * np.floor(v * 7 / np.abs(v).max() + rng.random(256))

    for _ in range(50):
        x = 0.5 * x + 0.25 * np.stack(
            [coded(x[i - 1]) + coded(x[(i + 1) % 4]) for i in range(4)]
        )
    return float(np.abs(x.mean(axis=0) - MODELS.mean(axis=0)).max())


def our_own_noise() -> float:
    code = codes.quantize(4, stochastic_rounding=True)
    tx = relaxjax.gossip("data", topology.ring(4), compressor=code)
    found = mixed(tx, MODELS, 50)
    return float(np.abs(found.mean(axis=0) - MODELS.mean(axis=0)).max())


def spread(tx: Any) -> float:
    """The largest difference of models after 200 steps to minima that differ."""
    targets = np.arange(4, dtype=np.float32)

    def run(target: Any) -> Any:
        def step(carry: Any, _: None) -> Any:
            x, state = carry
            updates, state = tx.update(x - target, state, x)
            return (x + updates, state), None

        x = jnp.zeros(())
        return lax.scan(step, (x, tx.init(x)), length=200)[0][0]

    return float(np.ptp(on_workers(run, targets)))


def wrong_side() -> float:
    return spread(
        optax.chain(relaxjax.gossip("data", topology.ring(4)), optax.sgd(0.05))
    )


def our_side() -> float:
    return spread(
        optax.chain(optax.sgd(0.05), relaxjax.gossip("data", topology.ring(4)))
    )


APART = np.arange(20, dtype=np.float32).reshape(2, 10)  # of two workers


def wrong_last_bucket() -> float:
    """Each bucket's mean is taken, and that of the last one is kept."""
    kept, pending = APART.copy(), (slice(0), np.zeros(0))
    for bucket in (slice(0, 5), slice(5, 10)):
        pending = bucket, APART[:, bucket].mean(0)
    kept[:, pending[0]] = pending[1]
    return float((kept[0] == kept[1]).sum())


def our_buckets() -> float:
    outer = {"outer": optax.sgd(1.0), "fragments": 1, "bucket_bytes": 5 * 4}
    tx = relaxjax.streaming_diloco(optax.sgd(1.0), "data", 1, **outer)

    def run(apart: Any) -> Any:
        x = {"a": jnp.zeros(5), "b": jnp.zeros(5)}
        moved = {"a": apart[:5], "b": apart[5:]}
        updates, _ = tx.update(moved, tx.init(x), x)
        return optax.apply_updates(x, updates)

    found = on_workers(run, APART)
    return float(sum((x[0] == x[1]).sum() for x in found.values()))


EXHIBITS = [
    Exhibit(
        "The mean of means", lambda: float(OF_ROWS.mean()), our_uneven, near(32 / 8)
    ),
    Exhibit(
        "Who is absent counts as zero",
        lambda: float(np.mean([1, 1, 1, 0])),
        our_absent,
        near(1),
    ),
    Exhibit("Zero times NaN", wrong_absent_nan, our_absent_nan, near(1)),
    Exhibit(
        "Gradients that were added up already",
        wrong_replicated,
        our_replicated,
        near(1),
    ),
    Exhibit(
        "Accumulation that sends every mini-step",
        wrong_mini_steps,
        our_mini_steps,
        near(1, 0.02),
    ),
    Exhibit(
        "A skipped exchange that is sent",
        wrong_where,
        lambda: sent(relaxjax.local_sgd("data", 8), 8),
        near(1, 0.02),
    ),
    Exhibit(
        "A sum where a mean is meant",
        lambda: float(np.ones(4).sum()),
        our_accumulated_mean,
        near(1),
    ),
    Exhibit("Equal shares for all neighbors", wrong_degrees, our_degrees, near(3)),
    Exhibit(
        "Codes that two ends decode differently",
        wrong_own_noise,
        our_own_noise,
        below(1e-5),
    ),
    Exhibit("Gossip on the wrong side", wrong_side, our_side, below(0.5)),
    Exhibit("The last bucket alone", wrong_last_bucket, our_buckets, near(10)),
]

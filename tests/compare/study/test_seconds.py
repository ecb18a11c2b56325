"""Predicted seconds: alike for what sends alike, whether a plan knows it or not."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import relaxjax
from relaxjax import emulate, tasks, wire_bytes
from relaxjax.compare.study._methods import methods
from relaxjax.compare.study._one_run import Shape
from relaxjax.compare.study._seconds import Seconds

COMPUTE, LATENCY, BANDWIDTH = 0.02, 0.01, 1e8
OUTER = "outer_learning_rate=0.5 outer_momentum=0.3"


def task(seed: int, shape: tuple[int, int] = (64, 32)) -> tasks.Task:
    rows = {"x": jnp.ones((16, shape[0]))}
    return tasks.of_arrays(
        params=jnp.full(shape, 0.1 * seed),
        loss=lambda w, rows: jnp.mean((rows["x"] @ w) ** 2),
        metric=lambda w, rows: jnp.mean(w),
        train=rows,
        test=rows,
        steps=8,
        batch_size=8,
    )


def seconds(*names: object, **how: Any) -> tuple[list[float], list[str]]:
    """Predicted seconds of a step of each, and where they come from."""
    asked = [x for x in names if isinstance(x, str)] or {"own": names[0]}
    found = methods(asked, task(0, **how))
    shape = Shape(make=task, steps=8, workers=8, batch_size=8)
    of = Seconds(found, task(0, **how), shape, COMPUTE)
    labels = [method.label for method in found]
    return [of(x, LATENCY, BANDWIDTH) for x in labels], [of.source(x) for x in labels]


def test_options_that_send_nothing_change_nothing():
    both = [f"diloco+quantize4+ef14 sync_every=5{x}" for x in ("", f" {OUTER}")]
    (plain, other), sources = seconds(*both)
    assert other == plain > COMPUTE + 8 * LATENCY / 5
    assert sources == ["plan", "plan"]


def test_codes_without_an_algorithm_are_those_of_two_shots():
    names = ("power_sgd rank=2 bits=8", "power_sgd@two_shot rank=2 bits=8")
    (plain, other, by_turns), sources = seconds(*names, "acp_sgd rank=4 bits=8")
    assert plain == other > by_turns
    assert sources == ["plan"] * 3


def test_an_option_without_which_nothing_can_be_sent_matters():
    """Rank 4, which is usual, does not make a matrix of 4 x 2 smaller."""
    (found,), _ = seconds("power_sgd rank=1 iterations=2", shape=(4, 2))
    assert found > COMPUTE


def test_what_a_plan_does_not_know_is_traced():
    """A step's own sum: bytes, and two times three latencies of eight workers."""
    tx = optax.chain(relaxjax.all_reduce("data"), optax.scale(-1.0))
    (found,), sources = seconds(tx)
    sent = wire_bytes(tx, jax.ShapeDtypeStruct((64, 32), jnp.float32), emulate(8))
    assert found == pytest.approx(COMPUTE + 6 * LATENCY + sent / BANDWIDTH)
    assert sources == ["traced bytes"]
    (known,), sources = seconds("all_reduce")
    assert sources == ["plan"]
    assert found == pytest.approx(known, rel=1e-6)


def test_methods_alike_on_the_wire_are_alike_in_time():
    """One sum in four steps, where latency is all; plans know the first alone."""
    (stated, other, local), sources = seconds(
        "diloco sync_every=4", f"diloco sync_every=4 {OUTER}", "local_sgd sync_every=4"
    )
    assert stated == other == local
    assert sources == ["plan"] * 3


def test_a_schedule_is_traced_over_the_steps_of_a_run():
    """Of 8 steps, 4 send, as with a period of two."""
    rule = "periods=table:1,2,2,3"
    (found, other, plain), sources = seconds(
        f"local_sgd {rule}", "local_sgd periods=table:0=2", "local_sgd sync_every=2"
    )
    assert sources == ["plan"] * 3
    assert found == other == plain > COMPUTE
    (found, plain), sources = seconds(f"gossip {rule}", "gossip")
    assert sources == ["plan"] * 2
    assert 2 * (found - COMPUTE) == pytest.approx(plain - COMPUTE)


def test_a_schedule_of_more_than_one_exchange_is_its_traced_bytes():
    """Fragments, and moments, of which a plan has whole periods."""
    shape, how = (64, 32), "periods=table:0=4"
    for name in ("sparse_loco", "desynced"):
        (found,), sources = seconds(f"{name} {how}", shape=shape)
        assert sources == ["traced bytes"]
        assert found > COMPUTE


def test_a_run_that_ends_before_the_first_exchange_is_computation_alone():
    (found, sent), _ = seconds("local_sgd periods=table:1000", "local_sgd sync_every=8")
    assert found == COMPUTE < sent

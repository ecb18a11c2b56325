"""Seeds that are one program have the numbers of seeds that are not."""

import dataclasses
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import compare, tasks
from relaxjax.compare.study._methods import Planned, methods
from relaxjax.compare.study._one_run import Shape, program
from relaxjax.compare.study._seeds_at_once import bytes_of_one, group_of, seeds_that_fit

NAMES = [
    "all_reduce",
    "power_sgd rank=1",
    "one_bit_adam freeze_step=3",
    "diloco+quantize8 sync_every=2",
    "gossip@one_peer_exponential",
]


TRUTH = np.array([[1, 0], [0, -2], [1, 1], [0, 3]], np.float32)


def rows(count: int, seed: int) -> dict[str, np.ndarray]:
    x = np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)
    return {"x": x, "y": np.tanh(x @ TRUTH)}


def loss(w: jax.Array, rows: Any) -> jax.Array:
    return jnp.mean((jnp.tanh(rows["x"] @ w) - rows["y"]) ** 2)


def task(seed: int) -> tasks.Task:
    return tasks.of_arrays(
        params=jnp.float32(np.random.default_rng(seed).normal(0, 0.3, (4, 2))),
        loss=loss,
        metric=loss,
        train=rows(64, 1),
        test=rows(16, 2),
        steps=8,
        batch_size=16,
        learning_rate=0.03,
    )


def records(folder: Path, make: Any = task, names: Any = NAMES, **how: Any) -> Any:
    how = {"seeds": 3, "tune": 1, "workers": 2} | how
    results = compare.Study(make, names, **how).run(folder)
    return {r["key"]: r for r in results.records()}


@pytest.mark.slow
def test_they_are_trained_as_alone(tmp_path):
    """Factors, phases, rounds and a peer that changes; 3 seeds as 2 + 1."""
    alone = records(tmp_path / "alone")
    found = records(tmp_path / "together", seeds_at_once=2)
    assert found.keys() == alone.keys()
    at_once = [r["timing"]["seeds_at_once"] for r in found.values()]
    assert at_once == [2, 2, 1] * len(NAMES)
    for key, record in found.items():
        assert record["seed"] == alone[key]["seed"]
        assert record["bytes_per_step"] == alone[key]["bytes_per_step"]
        np.testing.assert_allclose(record["curve"], alone[key]["curve"], rtol=2e-4)
        np.testing.assert_allclose(record["test"], alone[key]["test"], rtol=2e-4)
    assert len({record["test"] for record in found.values()}) > len(NAMES)


def with_state(seed: int) -> tasks.Task:
    """A model that counts its steps and adds noise by its own key."""

    def noisy(w, state, rows):
        key = jax.random.fold_in(state["key"], state["steps"])
        y = loss(w + 0.1 * jax.random.normal(key, w.shape), rows)
        return y, {**state, "steps": state["steps"] + 1}

    return tasks.of_arrays(
        params=task(seed).params,
        state={"key": jax.random.key(seed), "steps": jnp.int32(0)},
        loss=noisy,
        metric=lambda w, state, rows: loss(w, rows) + 0 * state["steps"],
        train=rows(64, 1),
        test=rows(16, 2),
        steps=4,
        batch_size=16,
    )


@pytest.mark.long
def test_each_has_its_own_state(tmp_path):
    how: Any = {"names": ["all_reduce"], "seeds": 2}
    alone = records(tmp_path / "alone", with_state, **how)
    found = records(tmp_path / "together", with_state, seeds_at_once=2, **how)
    for key, record in found.items():
        np.testing.assert_allclose(record["curve"], alone[key]["curve"], rtol=2e-4)


@pytest.mark.long
def test_one_that_diverges_leaves_the_others(tmp_path):
    def make(seed: int) -> tasks.Task:
        start = jnp.full((4, 2), jnp.nan if seed == 1 else 0.1)
        return dataclasses.replace(task(seed), params=start)

    how: Any = {"names": ["all_reduce"]}
    found = records(tmp_path / "together", make, seeds_at_once=3, **how)
    by_seed = {record["seed"]: record for record in found.values()}
    assert [by_seed[i]["diverged"] for i in range(3)] == [False, True, False]
    assert len(by_seed[1]["curve"]) == 1
    assert by_seed[1]["test"] is None
    alone = records(tmp_path / "alone", make, **how)
    for seed in (0, 2):
        expected = alone[by_seed[seed]["key"]]["test"]
        np.testing.assert_allclose(by_seed[seed]["test"], expected, rtol=2e-4)


@pytest.mark.long
def test_what_a_kill_cut_off_is_made_to_the_bit(tmp_path):
    """One line of a group is there: the whole group is trained, the rest is written."""
    how: Any = {"names": ["all_reduce"], "seeds_at_once": 3}
    whole = records(tmp_path, **how)
    path = tmp_path / "results.jsonl"
    path.write_text(path.read_text().splitlines(keepends=True)[0])
    again = records(tmp_path, **how)
    assert len(path.read_text().splitlines()) == len(whole)
    assert again.keys() == whole.keys()
    for key, record in again.items():
        assert record | {"timing": 0} == whole[key] | {"timing": 0}


def test_groups_are_cut_in_order():
    method = methods(["all_reduce"], task(0))[0]
    run = Planned(method, "report", 3, 0.1, {})
    assert [r.seed for r in group_of(run, range(5), 2)] == [2, 3]
    assert [r.seed for r in group_of(run._replace(seed=4), range(5), 2)] == [4]
    assert group_of(run._replace(phase="tune", seed=1000), range(5), 2) == [
        run._replace(phase="tune", seed=1000)
    ]


def test_as_many_as_the_memory_of_a_gpu_takes():
    shape = Shape(make=task, steps=8, workers=2, batch_size=16)
    run = Planned(methods(["all_reduce"], task(0))[0], "report", 0, 0.1, {})
    built = program(run, task(0), shape)
    one = bytes_of_one(built, task(0), shape)
    assert one > 2 * 3 * 4 * 2 * 4  # params and two moments of two workers

    def device(platform: str, memory: int) -> Any:
        return types.SimpleNamespace(
            platform=platform, memory_stats=lambda: {"bytes_limit": memory}
        )

    fit = [
        seeds_that_fit(built, task(0), shape, device("gpu", memory))
        for memory in (one // 2, int(2.6 * one), 5 * one)
    ]
    assert fit == [1, 2, 4]
    assert seeds_that_fit(built, task(0), shape, device("cpu", 5 * one)) == 1
    assert seeds_that_fit(built, task(0), shape) == 1


def test_a_count_that_is_none_is_refused():
    with pytest.raises(ValueError, match="seeds_at_once"):
        compare.Study(task, ["all_reduce"], seeds_at_once=0)

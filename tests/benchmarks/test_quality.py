"""What `python -m benchmarks quality-at-bytes` reports follows from what it trained."""

import dataclasses
import json
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import relaxjax
from benchmarks.training import loop as _training
from benchmarks.training import quality as _quality
from benchmarks.training.quality_methods import (
    BASELINES,
    MESH,
    TARGETS,
    Method,
    methods,
)
from relaxjax.compression import sign, top_k
from relaxjax.tasks import TASKS


def small():
    """800 parameters in two leaves, and nothing to train."""
    task = TASKS["digits"](0)
    params = {"a": jnp.zeros((20, 36)), "b": jnp.zeros(80)}
    return dataclasses.replace(task, params=params)


def few(budget, task):
    """A sparse method at every budget, and a dense code at the first."""
    del task
    yield Method(name="top_k", make=top_k, algorithm="one_shot")
    if budget == 32:
        yield Method(name="sign", make=lambda _: sign(), algorithm="two_shot")


def row(metric, sent, budget=32, *, name="accuracy", fits=True, worse=0.0):
    return {
        "metric": name,
        "metrics": [metric],
        "bytes": sent,
        "budget": budget,
        "fits": fits,
        "worse": [worse, None, None],
    }


def lost(density):
    """More with fewer elements; dense codes have a density of 1."""
    return 0.1 - density % 1


def accuracy_of(method, task, steps, density, seed):
    """Instead of training."""
    del task, steps
    return 0.9 + 0.01 * seed - (lost(density) if method.make else 0.0)


@pytest.mark.slow
def test_quality(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(_quality, "methods", few)
    monkeypatch.setattr(Method, "held_out", accuracy_of)
    task = small()
    monkeypatch.setattr(_quality, "TASKS", {"digits": lambda _: task})
    found = _quality.quality(task=["digits"], steps=3, seeds=2, out=str(tmp_path))
    assert json.loads((tmp_path / "quality.json").read_text()) == found
    assert (tmp_path / "quality-digits.png").read_bytes().startswith(b"\x89PNG")
    ring, *rows = found["rows"]
    assert [r["budget"] for r in rows] == [32, 32, 100, 400]
    assert ring["metrics"] == pytest.approx([0.9, 0.91])
    for r in rows:
        assert r["fits"] == (r["bytes"] * r["budget"] <= ring["bytes"])
        assert r["share"] == r["bytes"] / ring["bytes"]
        gaps = [lost(r["density"]) / base for base in ring["metrics"]]
        assert r["worse"][0] == pytest.approx(np.mean(gaps[: len(r["metrics"])]))
    # Sign costs more than 1/32 and is worse; at 1/400, the same bytes are no better.
    assert [len(r["metrics"]) for r in rows] == [2, 1, 2, 1]
    assert [r["fits"] for r in rows] == [True, False, True, False]
    printed = capsys.readouterr().out
    assert "digits 1/32: 1% missed: +" in printed
    assert "digits 1/400" not in printed  # nothing fits


@pytest.mark.slow
def test_a_sparse_method_uses_its_budget_up():
    task = small()
    ring = BASELINES[0].bytes(task, 1.0)
    assert ring == 2 * 7 * 100 * 4
    method = Method(name="top_k", make=top_k, algorithm="one_shot")
    density = method.density(task, ring / 4)
    # 7 (4 k + 10 k / 8) bytes for k of 800 elements
    assert density == 38 / 800
    sent, more = (method.bytes(task, k / 800) for k in (38, 39))
    assert sent <= ring / 4 < more
    assert method.density(task, 0) == 1 / 800  # the least there is
    dense = Method(name="sign", make=lambda _: sign())
    assert dense.density(task, 0) == 1.0  # there is nothing to choose


def test_a_method_sends_what_its_row_says():
    task = small()
    local, *_, each = methods(400, "chars")
    assert (local.every, each.every) == (60, 0)
    for method, steps in (local, 60), (each, 1):
        tx = method.transformation(task, 120, 0.05)
        sent = relaxjax.wire_bytes(tx, task.params, MESH, steps=steps)
        assert sent == steps * method.bytes(task, 0.05)


def test_local_steps_share_the_bytes_of_their_round():
    task = small()
    each, fourth = (Method(name="", make=lambda _: sign(), every=k) for k in (0, 4))
    assert fourth.bytes(task, 1.0) == each.bytes(task, 1.0) / 4
    tx = fourth.transformation(task, 8, 1.0)
    assert relaxjax.wire_bytes(tx, task.params, MESH, steps=3) == 0
    round_of_four = relaxjax.wire_bytes(tx, task.params, MESH, steps=4)
    assert round_of_four == each.bytes(task, 1.0)
    assert fourth.label == ", two_shot, after 4 local steps of adamw"


def test_a_run_that_ends_within_a_round_is_refused():
    method = Method(name="m", make=None, algorithm="auto", every=4)
    with pytest.raises(ValueError, match=r"--steps 6: .* multiple of 4, the local"):
        method.held_out(TASKS["digits"](0), 6, 1.0, seed=0)


def test_every_local_method_ends_with_the_tasks_own_steps():
    for task, steps in _quality.STEPS.items():
        for budget in TARGETS:
            rounds = [m.every for m in methods(budget, task) if m.every]
            assert len(rounds) >= 2
            assert all(steps % every == 0 for every in rounds)


def test_methods_are_listed_once():
    counts = {"digits": 10 + 12 + 7, "chars": 6 + 4 + 4}
    for task, count in counts.items():
        labels = [(b, m.label) for b in TARGETS for m in methods(b, task)]
        assert len(set(labels)) == len(labels) == count


def test_order_of_reducer_and_optimizer():
    task = TASKS["digits"](0)
    made = [
        Method(name="", make=None, algorithm="psum", after=after, optimizer="sgd")
        for after in (False, True)
    ]
    states: list[Any] = [m.transformation(task, 9, 1.0).init({}) for m in made]
    assert isinstance(states[0][0], relaxjax.AllReduceState)
    assert isinstance(states[1][1], relaxjax.AllReduceState)


def test_uncompressed_training_learns():
    assert BASELINES[0].held_out(TASKS["digits"](0), 40, 1.0, seed=0) > 0.8


def test_worse_is_paired_and_has_a_sign():
    mean, low, high = _training.worse([0.99, 0.96], [0.9, 0.96, 0.5], "accuracy")
    assert mean == pytest.approx(-0.05)
    # Student's t with one degree of freedom, of -0.1 and 0.
    assert (low, high) == pytest.approx(
        (-0.05 - 12.7062 * 0.05, -0.05 + 12.7062 * 0.05)
    )
    bits = {"metric": "bits_per_character", "metrics": [3.3]}
    assert _training.worse(bits["metrics"], [3.0], "bits") == pytest.approx(
        [0.1, None, None]
    )


def test_the_best_are_the_front_and_the_closest():
    rows = [
        row(0.9, 100, worse=0.1),
        row(0.8, 100, worse=0.01),  # dominated, but closest to its own baseline
        row(0.95, 120, fits=False, worse=-1.0),
        row(0.7, 50, 100, worse=0.3),
        row(float("nan"), 50, 100, worse=float("nan")),
        row(0.7, 60, 400, worse=0.4),  # no better than one of fewer bytes, but alone
    ]
    assert _quality._best(rows) == [0, 1, 2, 3, 5]
    flipped = [row(3.0, 10, 32, name="bits"), row(4.0, 10, 32, name="bits", worse=1.0)]
    flipped += [row(5.0, 20, b, name="bits") for b in (100, 400)]
    assert _quality._best(flipped) == [0, 2, 3]

"""A process of the network bench: what it answers, and that it trains as it should."""

import io
import json
import sys

import jax
import numpy as np
import optax
import pytest
from jax.sharding import Mesh

from benchmarks.network import jax_sharded as _network_sharded
from benchmarks.network import jax_worker as _network_jax
from benchmarks.network import torch_worker as _network_torch
from benchmarks.network import worker as _network_worker
from benchmarks.network.problem import problem, task
from benchmarks.network.worker import Session, WorkerPlace, serve

OWN = task(width=8, layers=1)
MADE = problem(OWN, processes=2, steps=3, windows=4, rows=2)
RATE = 1e-2


def test_obeys_line_by_line(monkeypatch):
    seen, answers = [], io.StringIO()

    def begin(method):
        return Session(lambda rows: seen.append(rows) or 0.5, lambda w: float(len(w)))

    orders = [
        {"do": "begin", "name": "a", "method": {"name": "alone"}},
        {"do": "steps", "name": "a", "count": 3, "warm": 1},
        {"do": "steps", "name": "a", "count": 1, "warm": 0},
        {"do": "loss", "name": "a"},
        {"do": "end", "name": "a"},
    ]
    monkeypatch.setattr(sys, "stdin", [json.dumps(order) for order in orders])
    serve(begin, WorkerPlace(1, 2, ""), MADE, answers)
    began, first, second, loss, ended = map(json.loads, answers.getvalue().splitlines())
    assert began == ended == {}
    assert (len(first["seconds"]), first["losses"]) == (2, [0.5] * 3)
    assert (len(second["seconds"]), second["losses"]) == (1, [0.5])
    assert loss == {"loss": 2.0, "steps": 4}
    for i, rows in enumerate(seen):  # after the last batch comes the first
        np.testing.assert_array_equal(rows, MADE.own_rows(i, 1, 2))


def test_a_training_goes_on_with_another_method(monkeypatch):
    answers = io.StringIO()

    def session(name):
        def on(method):
            return session(f"{name} {method['name']}")

        return Session(lambda rows: 0.0, lambda w: float(len(name)), on)

    orders = [
        {"do": "begin", "name": "a", "method": {"name": "one"}},
        {"do": "steps", "name": "a", "count": 2, "warm": 0},
        {"do": "take over", "name": "a", "method": {"name": "two"}},
        {"do": "loss", "name": "a"},
    ]
    monkeypatch.setattr(sys, "stdin", [json.dumps(order) for order in orders])

    def begin(method):
        return session(method["name"])

    serve(begin, WorkerPlace(0, 2, ""), MADE, answers)
    last = json.loads(answers.getvalue().splitlines()[-1])
    assert last == {"loss": float(len("one two")), "steps": 2}


@pytest.mark.slow
def test_what_is_taken_over_trains_on():
    mesh, programs = Mesh(jax.devices()[:2], "data"), _network_jax.Programs()
    method = {"name": "all_reduce", "options": {}, "rate": RATE, "steps": 3}
    method["arrears"] = True
    codes = {**method, "name": "all_reduce+quantize8+ef14@two_shot"}
    training = _network_jax.begin(method, OWN, mesh, programs)
    for told in (method, codes, method):  # its program is made once
        training.step(MADE.batches[0])
        assert training.taken_over is not None
        training = training.taken_over(told)
    assert len(programs) == 2
    whole = _network_jax.begin(method, OWN, mesh)
    for _ in range(3):
        whole.step(MADE.batches[0])
    found, right = training.loss(MADE.windows), whole.loss(MADE.windows)
    assert found == pytest.approx(right, abs=1e-3)


def plain(steps):
    """Losses of Adam on one device, on whole batches."""
    adam, params = optax.adam(RATE), OWN.params
    state, losses = adam.init(params), []
    for i in range(steps):
        loss, grads = jax.value_and_grad(OWN.loss)(params, MADE.batches[i])
        updates, state = adam.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        losses.append(float(loss))
    return losses, float(OWN.loss(params, MADE.windows))


@pytest.mark.slow
def test_relaxjax_trains_as_one_device_does():
    mesh = Mesh(jax.devices()[:2], "data")
    method = {"name": "all_reduce", "options": {}, "rate": RATE, "steps": 3}
    training = _network_jax.begin(method, OWN, mesh)
    for i in range(3):
        training.step(MADE.batches[i])
    assert training.loss(MADE.windows) == pytest.approx(plain(3)[1], abs=1e-4)
    alone = _network_jax.begin({**method, "name": "alone"}, OWN, mesh)
    half = alone.step(MADE.batches[0])  # the first worker's
    assert half == pytest.approx(float(OWN.loss(OWN.params, MADE.own_rows(0, 0, 2))))


@pytest.mark.slow
@pytest.mark.parametrize("per_host", [1, 2])
@pytest.mark.parametrize(
    ("name", "options", "close"),
    [
        ("jit_fsdp", {}, 1e-4),
        ("fsdp", {}, 1e-4),
        ("fsdp", {"weights": 8, "gradients": 4}, 0.05),
        ("sdp4bit", {}, 0.05),
    ],
)
def test_sharded_weights_train_as_whole_ones_do(name, options, close, per_host):
    method = {"name": name, "options": options, "rate": RATE}
    mesh = _network_sharded.mesh_of(jax.devices()[:2], per_host)
    training = _network_sharded.begin(method, OWN, mesh)
    for i in range(3):
        training.step(MADE.batches[i])
    _, held_out = plain(3)
    half = np.tile(MADE.windows[:2], (2, 1))  # both workers judge the same
    loss = training.loss(half)
    both = [training.loss(np.tile(x, (2, 1))) for x in np.split(MADE.windows, 2)]
    assert loss == both[0]
    assert np.mean(both) == pytest.approx(held_out, abs=close)


def test_torch_trains_as_jax_does():
    pytest.importorskip("torch")
    method = {"name": "alone", "options": {}, "rate": RATE, "steps": 3}
    training = _network_torch.begin(method, MADE)
    losses = [training.step(MADE.batches[i]) for i in range(3)]
    expected, held_out = plain(3)
    np.testing.assert_allclose(losses, expected, atol=1e-4)
    assert training.loss(MADE.windows) == pytest.approx(held_out, abs=1e-3)


def test_a_place_and_a_file_are_its_arguments(tmp_path, monkeypatch, capfd):
    MADE.save(tmp_path / "problem.npz")
    arguments = [str(tmp_path / "problem.npz"), "1", "2", "10.0.0.1:5"]
    monkeypatch.setattr(sys, "argv", ["worker", *arguments])
    monkeypatch.setattr(sys, "stdin", [])
    made = []

    def make(place, given):
        made.append((place, given.size()))
        return lambda method: pytest.fail("nothing was ordered")

    _network_worker.main(make)
    assert made == [(WorkerPlace(1, 2, "10.0.0.1:5"), (8, 1))]
    assert capfd.readouterr().out == '{"ready": 1}\n'

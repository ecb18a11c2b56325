"""The main job, in this process: what it computes and what it writes."""

import dataclasses
import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rich.console import Console

from relaxjax.cli.common._errors import Stopped
from relaxjax.cli.options._train import TrainOptions
from relaxjax.cli.training import _checked, _job, _loop, _prepare, _training
from relaxjax.tasks import TASKS, _chars

KEYS = [
    "relaxation",
    "task",
    "workers",
    "steps",
    "seed",
    "loss",
    "metric_name",
    "metric",
    "bytes_per_step",
    "steps_per_second",
    "spread",
    "data",
    "curve",
]


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A short run on four workers, with its baseline: records and folder."""
    out = tmp_path_factory.mktemp("short")
    options = TrainOptions(workers=4, steps=30, seed=2, out=out)
    return _training.run(_prepare.prepare(options)), out


@pytest.mark.long
def test_run_json_is_as_documented(short):
    records, out = short
    written = json.loads((out / "run.json").read_text())
    assert list(written) == KEYS
    assert list(written["data"]) == ["bytes", "sha256"]
    assert written["relaxation"] == "all_reduce"
    assert (written["task"], written["workers"]) == ("digits", 4)
    assert (written["steps"], written["seed"]) == (30, 2)
    assert written["metric_name"] == "accuracy"
    assert written["curve"][-1] == [30, written["loss"], written["metric"]]
    assert all(len(row) == 3 for row in written["curve"])
    assert written["spread"] == 0.0
    assert written["steps_per_second"] > 0
    assert written["metric"] == records[0].metric


@pytest.mark.long
def test_bytes_per_step_are_those_of_a_ring(short):
    leaves = [64 * 128, 128, 128 * 128, 128, 128 * 10, 10]
    assert short[0][0].bytes_per_step == sum(6 * -(-d // 4) * 4 for d in leaves)
    assert short[0][1].bytes_per_step == 0


def test_curves_are_a_png(short):
    content = (short[1] / "curves.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(content) > 10_000


def test_workers_learn_what_one_worker_learns(short):
    (many, one), out = short
    assert (many.workers, one.workers) == (4, 1)
    np.testing.assert_allclose(many.curve, one.curve, rtol=1e-3)
    assert json.loads((out / "one_worker.json").read_text())["workers"] == 1


def test_the_same_seed_trains_the_same(short, tmp_path):
    options = TrainOptions(workers=4, steps=30, seed=2, out=tmp_path, no_baseline=True)
    (again,) = _training.run(_prepare.prepare(options))
    assert again.curve == short[0][0].curve
    assert not (tmp_path / "one_worker.json").exists()


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("workers", [3, 17])
def test_any_number_of_workers(workers, tmp_path, capsys):
    options = TrainOptions(workers=workers, steps=1, out=tmp_path)
    job = _prepare.prepare(options)
    assert job.batch_size % workers == 0
    assert job.batch_size - 128 < workers
    many, one = _training.run(job)
    assert many.workers == workers
    np.testing.assert_allclose(many.curve, one.curve, rtol=1e-3)
    shown = capsys.readouterr().out
    assert "digits: 1 steps, seed 0" in shown
    assert ("emulated on one" in shown) == (workers == 17)


@pytest.mark.long
def test_accumulation_divides_the_bytes(short, tmp_path):
    options = TrainOptions(
        workers=4,
        steps=8,
        out=tmp_path,
        accumulate=4,
        skip_nonfinite=True,
        bucket_mb=0.01,
        no_baseline=True,
    )
    (record,) = _training.run(_prepare.prepare(options))
    count = 2 * 3 * 1 * 4  # of the skipped steps: one int32 to all-reduce
    assert record.bytes_per_step == (short[0][0].bytes_per_step + count) / 4
    assert record.spread == 0.0


@pytest.mark.long
def test_bytes_are_those_of_a_whole_period(short, tmp_path):
    options = TrainOptions(
        relaxation="local_sgd", workers=4, steps=6, out=tmp_path, no_baseline=True
    )
    for settings, period in ((), 8), (("sync_every=3",), 3):
        options = dataclasses.replace(options, settings=settings, force=True)
        (record,) = _training.run(_prepare.prepare(options))
        assert record.bytes_per_step == short[0][0].bytes_per_step / period
    assert record.spread < 1e-6
    assert record.metric > 0.3
    options = dataclasses.replace(options, settings=(), periods="table:1,2,3")
    (record,) = _training.run(_prepare.prepare(options))  # 3 meetings in 6 steps
    assert record.bytes_per_step == short[0][0].bytes_per_step / 2


@pytest.mark.long
def test_digits_are_learned_on_eight_workers_at_the_defaults(tmp_path):
    (record,) = _training.run(
        _prepare.prepare(TrainOptions(out=tmp_path, no_baseline=True))
    )
    assert record.workers == 8
    assert record.metric >= 0.95
    assert record.spread == 0.0


@pytest.mark.slow
def test_characters_are_learned(tmp_path, monkeypatch):
    monkeypatch.setattr(_chars, "_HELD_OUT_WINDOWS", 32)
    monkeypatch.setattr(_loop, "_POINTS", 2)
    options = TrainOptions(
        task="chars", workers=2, steps=12, batch_size=8, out=tmp_path, no_baseline=True
    )
    (record,) = _training.run(_prepare.prepare(options))
    assert record.metric_name == "bits_per_character"
    assert record.metric < 6.5  # 7 knows nothing
    assert record.curve[0][2] > record.metric


def test_results_go_to_a_folder_named_after_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = _prepare.prepare(TrainOptions(relaxation="all_reduce@ring", workers=2))
    assert str(job.out) == "runs/digits-all_reduce@ring-2"
    assert job.out.is_dir()
    assert job.steps == 400


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            TrainOptions(relaxation="sum"),
            r"no relaxation 'sum'\..* There is .*all_reduce",
        ),
        (
            TrainOptions(workers=0),
            r"--workers 0: it must be 1 or more; leave --workers out",
        ),
        (TrainOptions(steps=0), r"--steps 0: it must be 1 or more"),
        (TrainOptions(seed=-1), r"--seed -1: it must be 0 or more"),
        (TrainOptions(accumulate=0), r"--accumulate 0: it must be 1 or more"),
        (
            TrainOptions(relaxation="local_sgd", settings=["sync_every=0"]),
            r"sync_every=0 must be a whole number",
        ),
        (TrainOptions(batch_size=0), r"--batch-size 0: it must be 1 or more"),
        (TrainOptions(batch_size=100), r"--batch-size 100 .* 8 workers; .* 96 or 104"),
        (TrainOptions(batch_size=3), r"--batch-size 3 .* such as 8$"),
        (
            TrainOptions(learning_rate=0.0),
            r"--learning-rate 0.0: it must be more than 0",
        ),
        (TrainOptions(learning_rate=math.nan), r"--learning-rate nan: .* and finite"),
        (TrainOptions(settings=["rank"]), r"--set rank: it must be an option of the"),
        (TrainOptions(settings=["rank=4"]), r"no option 'rank'; it has bucket_bytes"),
        (
            TrainOptions(relaxation="power_sgd", settings=["rank=0"]),
            r"rank=0 must be a whole number",
        ),
        (
            TrainOptions(
                relaxation="one_bit_adam", steps=9, settings=["freeze_step=9"]
            ),
            r"freeze_step=9 is not before the end of training, after 9 steps",
        ),
        (TrainOptions(periods="qsr:peaks=2"), r"'all_reduce' has no period, and takes"),
        (
            TrainOptions(relaxation="local_sgd", periods="table:4,0"),
            r"periods\[1\]=0 must be a whole number",
        ),
        (
            TrainOptions(
                relaxation="local_sgd", periods="9", settings=["sync_every=8"]
            ),
            r"periods=9 and sync_every=8 both say when workers meet: leave one out",
        ),
        (TrainOptions(bucket_mb=-1.0), r"--bucket-mb -1.0: it must be more than 0"),
    ],
)
def test_bad_options_are_refused(options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        _prepare.prepare(options)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("")
    with pytest.raises(ValueError, match=r"--out .*taken: cannot make this folder"):
        _prepare.prepare(TrainOptions(workers=1, out=taken))


def test_the_learning_rate_rises_falls_and_counts_the_optimizers_own_steps():
    task = TASKS["digits"](0)
    options = TrainOptions(learning_rate=0.5, accumulate=2)
    tx = _checked.training(options, task, 40, 8).optimizer  # 20 updates
    weight = jnp.ones(())
    state, moves = tx.init(weight), []
    for _ in range(20):
        updates, state = tx.update(weight, state, weight)
        moves.append(-float(jnp.asarray(updates)))
    assert np.argmax(moves) == 2
    assert moves[2] == pytest.approx(0.5, rel=1e-2)
    assert moves[-1] < 0.05


@pytest.mark.parametrize(
    ("steps", "count"), [(1, 1), (7, 7), (20, 20), (33, 20), (1000, 20)]
)
def test_the_curve_ends_at_the_last_step(steps, count):
    points = _loop._points(steps)
    assert len(points) == count
    assert points[0] >= 1
    assert points[-1] == steps


def test_each_process_feeds_its_own_rows(monkeypatch):
    mesh = jax.make_mesh((4,), ("data",))
    monkeypatch.setattr(_loop, "own_rows", lambda mesh: (1, 2))
    rows = next(_loop._own_part(iter([{"x": np.arange(8)}]), mesh))
    assert rows["x"].tolist() == [4, 5, 6, 7]


def test_a_job_may_train_any_transformation(tmp_path):
    job = _prepare.prepare(
        TrainOptions(workers=2, steps=2, out=tmp_path, no_baseline=True)
    )
    local = _job.Run(name="none", tx=optax.sgd(0.1), mesh=job.runs[0].mesh, period=1)
    with pytest.warns(UserWarning, match="nothing in this transformation"):
        record = _training._train(job, local, Console(quiet=True), lambda step: False)
    assert record.spread > 0  # nothing synchronizes these workers
    assert record.bytes_per_step == 0


def test_a_job_stops_before_a_step_when_asked_to(tmp_path, monkeypatch):
    job = _prepare.prepare(TrainOptions(workers=2, steps=9, out=tmp_path))
    asked: list[int] = []

    def stops_before(self: Any, step: int) -> bool:
        asked.append(step)
        return step == 9 + 4  # of the second run

    monkeypatch.setattr(_job.hosts.Watch, "stops_before", stops_before)
    with pytest.raises(Stopped, match="stopped before step 5 of 9"):
        _training.run(job)
    assert asked == list(range(14))


def test_processes_that_do_not_come(tmp_path, monkeypatch):
    def alone() -> None:
        raise TimeoutError("join: processes [1] did not come in 60 s")

    monkeypatch.setattr(_prepare.hosts, "join", alone)
    with pytest.raises(ValueError, match=r"processes \[1\] did not come"):
        _prepare.prepare(TrainOptions(workers=2, steps=9, out=tmp_path))

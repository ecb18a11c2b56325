"""Studies on a task of two numbers: whole, stopped, killed, in shards, over budget."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compare, tasks
from relaxjax.compare.kept import _records
from relaxjax.compare.study._methods import named

TASK = """
import jax.numpy as jnp, numpy as np
from relaxjax.tasks import of_arrays

def rows(count, seed):
    x = np.random.default_rng(seed).normal(size=(count, 2)).astype(np.float32)
    return {"x": x, "y": x @ np.float32([1, -2])}

def loss(w, rows):
    return jnp.mean((rows["x"] @ w - rows["y"]) ** 2)

def task(seed):
    return of_arrays(
        params=jnp.full(2, 0.1 * seed, jnp.float32), loss=loss, metric=loss,
        train=rows(64, 1), test=rows(16, 2), steps=20, batch_size=8, learning_rate=0.1,
    )
"""
NAMES = ["all_reduce", "local_sgd sync_every=2", "gossip"]


def study(folder: Path, names: Any = NAMES, **how: Any) -> compare.Study:
    path = folder / "my_task.py"
    path.write_text(TASK)
    return compare.Study(str(path), names, **({"seeds": 2, "workers": 2} | how))


@pytest.mark.parametrize("seeds_at_once", [1, 2])
def test_batches_that_end_are_refused_by_name(tmp_path, seeds_at_once):
    text = TASK.replace("    return of_arrays(", "    made = of_arrays(")
    text += """
    def batches(seed, rows):
        for _ in range(3):
            yield {"x": np.ones((rows, 2), np.float32), "y": np.ones(rows, np.float32)}

    from dataclasses import replace
    return replace(made, batches=batches, validation=made.metric)
"""
    path = tmp_path / "ends.py"
    path.write_text(text)
    how: Any = {"seeds": 2, "workers": 2, "tune": 1, "compute": 1e-3}
    ends = compare.Study(str(path), NAMES[:1], seeds_at_once=seeds_at_once, **how)
    with pytest.raises(ValueError, match="has ended before the run"):
        ends.run(tmp_path / "out")


def without_timing(results: compare.Results) -> list[dict[str, Any]]:
    found = [{k: v for k, v in r.items() if k != "timing"} for r in results.records()]
    return sorted(found, key=lambda record: record["key"])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> compare.Results:
    folder = tmp_path_factory.mktemp("whole")
    return study(folder).run(folder / "out")


@pytest.mark.slow
@pytest.mark.long
def test_a_whole_study(whole):
    records = whole.records()
    assert len(records) == 3 * (3 + 1 + 2)
    for record in records:
        assert json.loads(json.dumps(record, allow_nan=False)) == record
        tested = record["phase"] == "report"
        assert (record["test"] is not None) == tested
        assert record["seed"] in (range(2) if tested else [1000])
    best = {r["method"]: r["learning_rate"] for r in records if r["phase"] == "report"}
    tuned = [r for r in records if r["phase"] == "tune" and r["method"] == NAMES[0]]
    finished = [r for r in tuned if r["validation"] is not None]
    assert (
        best[NAMES[0]] == min(finished, key=lambda r: r["validation"])["learning_rate"]
    )


@pytest.mark.long
def test_the_numbers_are_those_of_a_plain_loop(whole):
    """The baseline's first report, by NumPy-like steps of one worker."""
    record = next(r for r in whole.records() if r["phase"] == "report")
    make, _ = tasks.load(whole.study["task"]["file"])
    task = tasks.task_of(make(0))
    tx = optax.adamw(tasks.schedule(record["learning_rate"], 20))
    w, state = task.params, tx.init(task.params)
    for _, batch in zip(range(20), task.batches(0, 8), strict=False):
        updates, state = tx.update(jax.grad(task.loss)(w, batch), state, w)
        w = optax.apply_updates(w, updates)
    assert task.validation is not None
    np.testing.assert_allclose(record["test"], task.metric(w), rtol=1e-4)
    np.testing.assert_allclose(record["validation"], task.validation(w), rtol=1e-4)
    assert record["curve"][-1][0] == 20


@pytest.mark.long
def test_a_study_goes_on_and_repeats_nothing(whole, tmp_path):
    """It is stopped after every fourth run, as by a kill, and made anew."""
    results = None
    for _ in range(len(whole.records()) // 4 + 2):
        began: list[str] = []

        def stop(done: int, of: int, what: str, began: list[str] = began) -> None:
            if len(began) == 4:
                raise KeyboardInterrupt
            began.append(what)

        try:
            results = study(tmp_path).run(tmp_path / "out", progress=stop)
        except KeyboardInterrupt:
            continue
        break
    assert results is not None
    assert without_timing(results) == without_timing(whole)
    assert len((tmp_path / "out/results.jsonl").read_text().splitlines()) == 18


def test_runs_of_other_code_are_not_counted_as_done(tmp_path, monkeypatch):
    seen: list[int] = []
    how: Any = {"seeds": 1, "tune": 1}
    for code in ("one", "two"):
        monkeypatch.setattr(_records, "code_digest", lambda code=code: code)
        study(tmp_path, ["all_reduce", "gossip"], **how).run(
            tmp_path / "out", progress=lambda done, of, what: seen.append(done)
        )
    assert seen == [0, 1, 0, 1]


@pytest.mark.long
def test_shards_together_are_the_study(whole, tmp_path):
    for part in (2, 1):
        results = study(tmp_path).run(tmp_path / "out", shard=(part, 2))
    assert without_timing(results) == without_timing(whole)
    assert len(list((tmp_path / "out").glob("results-*of2.jsonl"))) == 2


@pytest.mark.long
def test_a_budget_begins_no_further_run(tmp_path):
    results = study(tmp_path).run(tmp_path / "out", budget=0.0)
    assert results.records() == []


@pytest.mark.long
def test_other_settings_are_other_studies(tmp_path):
    study(tmp_path).run(tmp_path / "out", budget=0.0)
    with pytest.raises(ValueError, match="steps=20 there, 30 here"):
        study(tmp_path, steps=30).run(tmp_path / "out")
    study(tmp_path, [*NAMES, "diloco"], seeds=3).run(tmp_path / "out", budget=0.0)


def test_a_run_that_diverges_is_a_row(tmp_path):
    wild_one = optax.chain(relaxjax.all_reduce("data"), optax.scale(-1e30))
    names = {"all_reduce": "all_reduce", "wild": wild_one}
    results = study(tmp_path, names, tune=1, seeds=1).run(tmp_path / "out")
    calm, wild = results.records()
    assert not calm["diverged"]
    assert wild["diverged"]
    assert wild["test"] is None
    assert wild["curve"][-1][1:].count(None) >= 1


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"seeds": 0}, "seeds"),
        ({"workers": 0}, "workers"),
        ({"tune": 1.5}, "tune"),
        ({"batch_size": 3}, "batch_size=3 cannot be shared equally by workers=2"),
        ({"networks": ["fast"]}, "network='fast' must be a bandwidth and a latency"),
        ({"steps": -1}, "steps"),
    ],
)
def test_bad_settings(tmp_path, how, says):
    with pytest.raises((ValueError, TypeError), match=says):
        study(tmp_path, **how)


def test_a_folder_without_a_study(tmp_path):
    with pytest.raises(ValueError, match=r"study.json cannot be read as a study"):
        compare.Results(tmp_path)


def test_a_model_with_state(tmp_path):
    """A running mean of the inputs, averaged over the workers for the metrics."""
    x = np.ones((32, 2), np.float32)

    def loss(w, state, batch):
        state = {"mean": 0.5 * state["mean"] + 0.5 * batch.mean(0)}
        return jnp.mean((batch @ w - 1) ** 2), state

    def metric(w, state, data):
        return jnp.mean((data @ w - 1) ** 2) + jnp.sum(state["mean"])

    def task(seed: int) -> tasks.Task:
        return tasks.of_arrays(
            params=jnp.zeros(2),
            state={"mean": jnp.zeros(2)},
            loss=loss,
            metric=metric,
            train=x,
            test=x,
            steps=4,
            batch_size=4,
        )

    one = compare.Study(task, ["all_reduce"], seeds=1, tune=1, workers=2)
    (record,) = one.run(tmp_path).records()
    assert record["test"] == pytest.approx(1.0 + 2 * (1 - 0.5**4), abs=0.05)


def quadratic(seed: int, how: Any = None) -> tasks.Task:
    """The task of `TASK`, of a function, with an optimizer."""
    x = np.random.default_rng(1).normal(size=(64, 2)).astype(np.float32)
    rows = {"x": x, "y": x @ np.array([1, -2], np.float32)}

    def loss(w, rows):
        return jnp.mean((rows["x"] @ w - rows["y"]) ** 2)

    return tasks.of_arrays(
        params=jnp.full(2, 0.1 * seed, jnp.float32), loss=loss, metric=loss,
        train=rows, test=rows, steps=20, batch_size=8, learning_rate=0.1, optimizer=how,
    )  # fmt: skip


def keys_of(one: compare.Study) -> list[str]:
    """The keys of the runs that a study would begin with."""
    return [one._key(run) for method in one.methods for run in one._planned(method, {})]


def test_a_task_brings_its_optimizer(tmp_path):
    """Momentum SGD at the task's own rate, also inside of DiLoCo."""

    def make(seed: int) -> tasks.Task:
        return quadratic(seed, lambda rate: optax.sgd(rate, 0.9))

    names = ["all_reduce", "local_sgd sync_every=1"]
    one = compare.Study(make, names, seeds=1, tune=1, workers=2)
    base, local = one.run(tmp_path).records()
    assert base["learning_rate"] == local["learning_rate"] == 0.1
    task, tx = tasks.task_of(make(0)), optax.sgd(tasks.schedule(0.1, 20), 0.9)
    w, state = task.params, tx.init(task.params)
    for _, batch in zip(range(20), task.batches(0, 8), strict=False):
        updates, state = tx.update(jax.grad(task.loss)(w, batch), state, w)
        w = optax.apply_updates(w, updates)
    np.testing.assert_allclose(base["test"], task.metric(w), rtol=1e-4)
    np.testing.assert_allclose(local["test"], task.metric(w), rtol=1e-4)


@pytest.mark.slow
def test_runs_of_functions_are_known_again():
    """What has an address in this process has none in a key."""
    code = (
        "from tests.compare.study.test_study import *; one = compare.Study(quadratic, "
        "{'plain': optax.sgd(0.1), 'twice': lambda r: optax.sgd(r)}, workers=2, "
        "seeds=1, tune=1); print(*keys_of(one), one._asked['task'])"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    ]
    assert said[0] == said[1]
    assert said[0].split()[-1] == "quadratic"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "what", ["own", "of a rate", "start", "loss", "metric", "data", "optimizer"]
)
def test_what_has_no_name_makes_other_runs(what):
    """A number in a transformation, a model that is imported, the data."""
    x = np.ones((32, 2), np.float32)

    def made(number: float) -> compare.Study:
        changed = {what: number}
        scale, shift = changed.get("loss", 1.0), changed.get("metric", 1.0)
        first = x * changed.get("data", 1.0)
        own = changed.get("own", 0.1)

        def task(seed: int) -> tasks.Task:
            return tasks.of_arrays(
                params=jnp.full(2, changed.get("start", 0.5)),
                loss=lambda w, rows: scale * jnp.mean((rows @ w - 1) ** 2),
                metric=lambda w, rows: shift * jnp.mean((rows @ w - 1) ** 2),
                train=first, test=first, steps=4, batch_size=4,
                data=tasks.Data(bytes=1, sha256="said"),
                optimizer=lambda rate: optax.sgd(rate, changed.get("optimizer", 0.0)),
                learning_rate=0.1,
            )  # fmt: skip

        factor = changed.get("of a rate", 1.0)
        both = {
            "base": optax.chain(relaxjax.all_reduce("data"), optax.sgd(own)),
            "rated": lambda rate: optax.chain(
                relaxjax.all_reduce("data"), optax.sgd(rate), optax.scale(factor)
            ),
        }
        return compare.Study(task, both, seeds=1, tune=1, workers=2)

    one, again, other = (keys_of(made(n)) for n in (0.25, 0.25, 0.75))
    assert one == again
    assert one != other


def test_a_report_counts_the_runs_of_its_own_study(tmp_path):
    """A transformation that changed, and changed back; then fewer rates."""

    def tests(factor: float, tune: int = 1) -> list[Any]:
        methods = {
            "base": optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1 * factor)),
            "rated": lambda rate: optax.chain(
                relaxjax.all_reduce("data"), optax.sgd(rate)
            ),
        }
        one = compare.Study(quadratic, methods, seeds=1, tune=tune, workers=2)
        records = one.run(tmp_path).records()
        assert compare.Results(tmp_path).records() == records
        found = [(r["method"], r["learning_rate"], r["test"]) for r in records]
        return sorted(found, key=str)

    first, changed = tests(1.0), tests(2.0)
    assert [x[0] for x in first] == [x[0] for x in changed] == ["base", "rated"]
    assert first[0] != changed[0]
    assert tests(1.0) == first
    assert len(tests(1.0, tune=2)) > 2
    assert tests(1.0) == first


def test_seconds_that_are_stated_take_the_place_of_others(tmp_path):
    """And those that are there stay, with their source, where none are stated."""

    def told(seconds: float | None) -> tuple[float, str]:
        compare.Study(
            quadratic, ["all_reduce"], seeds=1, tune=1, workers=2, compute=seconds
        ).run(tmp_path)
        said = json.loads((tmp_path / "study.json").read_text())
        return said["compute_seconds"], said["compute_source"].partition(":")[0]

    first = told(None)
    assert first[1] == "measured"
    assert told(None) == first
    assert told(0.5) == (0.5, "stated")
    assert told(None) == (0.5, "stated")


@pytest.mark.slow
def test_a_killed_study_goes_on_to_the_same_records(whole, tmp_path):
    """kill -9 at ten moments."""
    (tmp_path / "my_task.py").write_text(TASK)
    code = (
        "from relaxjax import compare; import sys; "
        f"compare.Study('my_task.py', {NAMES!r}, seeds=2, workers=2).run('out')"
    )
    rng = np.random.default_rng(0)
    for wait in [*rng.uniform(3, 12, size=10), None]:
        run = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
        if wait is None:
            assert run.wait() == 0
            break
        time.sleep(wait)
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
    lines = (tmp_path / "out/results.jsonl").read_text().splitlines()
    assert len(lines) == len(whole.records())
    assert without_timing(compare.Results(tmp_path / "out")) == without_timing(whole)


def test_a_rule_of_a_merge_is_an_option():
    task = tasks.digits(0)
    method = named("diloco sync_every=4 merge=trimmed:b=1", task)
    assert method.fixed["merge"] == "trimmed:b=1"
    method.build(0.1, {}, 8, 4)
    with pytest.raises(ValueError, match="there is no rule 'mode'"):
        named("diloco merge=mode", task)
    with pytest.raises(ValueError, match="has no option 'merge'"):
        named("gossip merge=median", task)


@pytest.mark.parametrize("shard", [(0, 2), (3, 2), (-1, 2)])
def test_a_shard_is_one_of_its_parts(shard, tmp_path):
    one = compare.Study(quadratic, ["all_reduce", "gossip"], workers=2)
    with pytest.raises(ValueError, match=r"must be \(i, n\), the i-th of n parts"):
        one.run(tmp_path / "out", shard=shard)
    assert not (tmp_path / "out").exists()


def test_labels_of_a_mapping_are_those_of_the_report(tmp_path):
    """And what they stand for tells runs apart, also from one of that name."""

    def keys(**named: str) -> list[str]:
        one = compare.Study(quadratic, named, workers=2, seeds=1, tune=1)
        assert [method.label for method in one.methods] == [*named]
        return keys_of(one)

    first, other = keys(gossip="diloco"), keys(gossip="diloco sync_every=2")
    assert len({*first, *other, *keys(gossip="gossip")}) == 3
    assert keys(gossip="gossip") == keys_of(
        compare.Study(quadratic, ["gossip"], workers=2, seeds=1, tune=1)
    )
    mine = {"plain": "all_reduce", "far": "diloco sync_every=2"}
    one = compare.Study(quadratic, mine, workers=2, seeds=1, tune=1)
    records = one.run(tmp_path).records()
    assert [record["method"] for record in records] == ["plain", "far"]
    assert "far" in compare.Results(tmp_path).table()

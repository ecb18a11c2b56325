"""`relaxjax train --checkpoint-every N --resume`: the same run.json."""

import json
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from relaxjax import checkpoint, emulate
from relaxjax.cli._app import app
from relaxjax.cli.training import _loop, _resume, _training

SHORT = ["train", "--workers", "2", "--steps", "30", "--no-baseline"]


def run(*options: str) -> str:
    result = CliRunner().invoke(app, [*SHORT, *options])
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.output


def refused(*options: str) -> str:
    result = CliRunner().invoke(app, [*SHORT, *options])
    assert result.exit_code == 2, result.output
    return result.output


def record(folder) -> dict:
    written = json.loads((folder / "run.json").read_text())
    assert written.pop("steps_per_second") >= 0
    return written


class Stopped(Exception):
    pass


def stopped_at_the_tenth_point(monkeypatch, *options: str) -> None:
    """A run that ends after step 15; with checkpoints every 7 the last is of 14."""
    consensus, calls = _loop.consensus, []

    def stop(tree):
        calls.append(tree)
        if len(calls) == 10:
            raise Stopped
        return consensus(tree)

    monkeypatch.setattr(_loop, "consensus", stop)
    stopped = CliRunner().invoke(app, [*SHORT, *options])
    assert isinstance(stopped.exception, Stopped)
    monkeypatch.undo()


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("relaxation", ["all_reduce+top_k+ef14", "post_local_sgd"])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    relaxation, tmp_path, monkeypatch
):
    options = ["--relaxation", relaxation]
    run(*options, "--out", str(tmp_path / "whole"))
    resumable = [*options, "--out", str(tmp_path / "a"), "--checkpoint-every", "7"]
    stopped_at_the_tenth_point(monkeypatch, *resumable)
    assert "--resume" in refused(*resumable)
    run(*resumable, "--resume")
    assert record(tmp_path / "a") == record(tmp_path / "whole")
    run(*resumable, "--resume")  # from step 28, and again
    assert record(tmp_path / "a") == record(tmp_path / "whole")
    folder = tmp_path / "a" / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["14", "21", "28"]
    other = ["--relaxation", "diloco", "--out", str(tmp_path / "a"), "--resume"]
    assert "the relaxation was" in refused(*other)


@pytest.mark.long
def test_a_run_goes_on_with_fewer_workers(tmp_path):
    out = ["--out", str(tmp_path), "--checkpoint-every", "10", "--batch-size", "12"]
    run(*out)
    output = run(*out, "--resume", "--workers", "3", "--steps", "30")
    assert "2 workers became 3" in output
    assert record(tmp_path)["workers"] == 3


TASK = """
import jax.numpy as jnp
import numpy as np
import {module}
from relaxjax.tasks import of_arrays

def task(seed):
    x = np.arange(64 * 3, dtype=np.float32).reshape(64, 3) / 99
    rows, start = (x, x.sum(1)), {{"w": jnp.zeros(3)}}
    loss = {module}.loss
    return of_arrays(params=start, loss=loss, metric=loss, train=rows, test=rows)
"""
LOSS = """
def loss(params, batch):
    x, y = batch
    return ((x @ params['w'] - y) ** 2)"""


@pytest.mark.long
@pytest.mark.parametrize("workers", ["2", "4"])
def test_a_loss_that_has_changed_in_an_imported_module_is_refused(
    workers, tmp_path, monkeypatch
):
    """The task's own file stays as it was, to the byte."""
    name = f"losses_for_{workers}"
    monkeypatch.syspath_prepend(tmp_path)
    module, task = tmp_path / f"{name}.py", tmp_path / "fit.py"
    task.write_text(TASK.format(module=name))
    args = ["--task", str(task), "--out", str(tmp_path / "a"), "--steps", "6"]
    args += ["--checkpoint-every", "3"]
    for text, again in ((".mean()", ()), (".mean()  # as before", ["--resume"])):
        module.write_text(LOSS + text)
        run(*args, *again)
        del sys.modules[name]
    module.write_text(LOSS + ".mean() * 1.01")
    said = " ".join(refused(*args, "--resume", "--workers", workers).split())
    assert "the task and what it imports" in said.replace("│ ", "")
    del sys.modules[name]


@pytest.mark.parametrize("left", ["run.json", "one_worker.json", "order.json"])
def test_files_of_two_runs_do_not_mix(left, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "runs" / "digits-all_reduce-2"
    out.mkdir(parents=True)
    (out / left).write_text("{}")
    for also in ([], ["--resume"], ["--out", str(out)]):
        said = refused(*also)
        assert f"an earlier run has left {left} there" in " ".join(said.split())
        assert "--force" in said
    assert "leave one out" in refused("--force", "--resume")
    assert (out / left).read_text() == "{}"
    monkeypatch.setattr(_training, "run", lambda job: None)
    run("--force")
    assert list(out.iterdir()) == []


def test_checkpoints_are_not_removed_by_force(tmp_path):
    step = tmp_path / "checkpoints" / "3"
    with checkpoint.Checkpoints(step.parent, emulate(1)) as saved:
        saved.save(3, {"w": jnp.zeros((1, 2))}, now=True)
    said = refused("--out", str(tmp_path), "--force")
    assert "holds checkpoints of an earlier run" in " ".join(said.split())
    assert step.is_dir()


@pytest.mark.long
def test_resume_without_checkpoints_begins(tmp_path):
    (tmp_path / _resume.DECISIONS).write_text("{}")  # of a run that was cut off at once
    run("--out", str(tmp_path), "--resume")
    assert record(tmp_path)["curve"][0][0] == 2
    assert "--checkpoint-every 0" in refused("--checkpoint-every", "0")


def test_losses_since_the_last_point_come_back_as_they_are():
    """Of a run in 64 bits too, or its mean is another one after a checkpoint."""
    losses = [np.float64(0.1), jnp.float32(0.1), jnp.bfloat16(0.1)]
    kept = _resume.Progress((), losses=losses, heard=losses).tree()
    for name in ("losses", "heard"):
        assert [float(x) for x in kept[name]] == [float(x) for x in losses]

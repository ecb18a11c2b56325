"""`relaxjax train` as a user meets it."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import optax
import pytest
from jax import lax
from typer.testing import CliRunner

import relaxjax
from relaxjax._core.foreign._spelling import GRAMMAR
from relaxjax._names import RELAXATIONS
from relaxjax.cli import app
from relaxjax.cli.common import _known
from relaxjax.cli.common._known import TaskName
from relaxjax.cli.options._train import TrainOptions
from relaxjax.cli.training import _checked, _job, _prepare, _training
from relaxjax.compression._rows import COMPRESSORS, FEEDBACKS
from relaxjax.tasks import TASKS

ROOT = Path(__file__).parent.parent.parent
PLAIN = {"NO_COLOR": "1", "COLUMNS": "120", "TERM": "dumb"}
HIDE_TYPER = "import sys; sys.modules['typer'] = None; import relaxjax.__main__ as m; "


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments), env=PLAIN)


def environment(**extra: str) -> dict[str, str]:
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), **extra}
    env.pop("NPROC", None)
    return env


def command(*arguments: str, cwd: Path, **extra: str):
    """`python -m relaxjax ...` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "relaxjax", *arguments],
        cwd=cwd,
        env=environment(**extra),
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_help_lists_each_relaxation_with_its_line():
    result = invoke("train", "--help")
    assert result.exit_code == 0
    shown = " ".join(result.output.split())
    for row in RELAXATIONS.values():
        assert f"{row.name} {row.summary}" in shown
    assert GRAMMAR in shown
    for name in (*COMPRESSORS, *FEEDBACKS):
        assert name in shown
    assert "--relaxation" in shown


def test_help_of_the_whole_names_the_command():
    result = invoke("--help")
    assert result.exit_code == 0
    assert "train" in result.output


def test_each_task_is_an_option():
    assert {name.value for name in TaskName} == set(TASKS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--relaxation", "sums"], "there is no relaxation 'sums'"),
        (["--relaxation", "all_reduce@fast"], "psum, ring"),
        (["--workers", "0"], "--workers 0: it must be 1 or more"),
        (["--batch-size", "100"], "multiple of 8, such as 96 or 104"),
        (
            ["--task", "moon"],
            "--task moon: there is no such task; there is digits, chars",
        ),
        (["--steps", "many"], "--steps"),
        (["--check-every", "0"], "--check-every 0: it must be 1 or more"),
        (["--check-every", "2", "--relaxation", "gossip"], "gossip differ on purpose"),
    ],
)
def test_mistakes_are_a_message_and_exit_code_2(arguments, message):
    result = invoke("train", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "Traceback" not in result.output


def test_every_option_reaches_the_job(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(_prepare, "prepare", seen.append)
    monkeypatch.setattr(_training, "run", lambda job: None)
    line = (
        "train --relaxation all_reduce@ring --task chars --workers 2 --steps 4 "
        "--seed 3 --batch-size 8 --accumulate 5 --learning-rate 0.1 --bucket-mb 0.5 "
        "--set rank=4 --set x=0.5 --skip-nonfinite --no-baseline --check-every 7 "
        "--periods qsr:peaks=2 --out"
    )
    result = invoke(*line.split(), str(tmp_path))
    assert result.exit_code == 0, result.output
    expected = TrainOptions(
        relaxation="all_reduce@ring",
        workers=2,
        task="chars",
        steps=4,
        seed=3,
        out=tmp_path,
        batch_size=8,
        learning_rate=0.1,
        bucket_mb=0.5,
        settings=["rank=4", "x=0.5"],
        periods="qsr:peaks=2",
        accumulate=5,
        skip_nonfinite=True,
        check_every=7,
        no_baseline=True,
    )
    assert seen == [expected]
    assert invoke("train").exit_code == 0
    assert seen[1] == TrainOptions()


def test_files_complete_what_is_typed_of_a_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for name in ("mine.py", "mine.txt", "models/digits.py"):
        (tmp_path / name).write_text("")
    complete = _known.tasks
    assert complete("") == ["digits", "chars", "mine.py", "models/"]
    assert complete("m") == ["mine.py", "models/"]
    assert complete("models/d") == ["models/digits.py"]
    assert complete("nowhere/d") == []


TASK = """
import jax, jax.numpy as jnp, numpy as np
from relaxjax.tasks import of_arrays

X = np.linspace(-1, 1, 40, dtype=np.float32)

def loss(w, state, rows):
    noise = 1e-3 * jax.random.normal(state["key"], ())
    new = {"key": jax.random.split(state["key"])[0], "steps": state["steps"] + 1}
    error = jnp.mean((w["a"] * rows["x"] - rows["y"]) ** 2)
    return error + noise * w["a"], new | {"mean": jnp.mean(rows["x"])}

def metric(w, state, rows):
    return jnp.mean(state["steps"] + rows["x"])

def line(seed):
    rows = {"x": X, "y": 3 * X}
    state = {"key": jax.random.key(seed), "steps": 0, "mean": jnp.zeros(())}
    how = dict(params={"a": jnp.zeros(())}, loss=loss, metric=metric, state=state)
    return of_arrays(
        **how, train=rows, test=rows, steps=6, batch_size=8, learning_rate=0.1,
        name="line",
    )
"""


@pytest.mark.long
def test_a_task_of_a_file_with_a_state_of_its_own(tmp_path, monkeypatch):
    """It is trained, stopped and resumed: steps of the state go on counting."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(TASK)
    line = "train --task mine.py:line --workers 2 --relaxation local_sgd --set"
    result = invoke(*line.split(), "sync_every=3")
    assert result.exit_code == 0, result.output
    written = json.loads(Path("runs/mine-line-local_sgd-2/run.json").read_text())
    assert (written["task"], written["steps"]) == ("line", 6)
    assert [row[2] for row in written["curve"]] == [1, 2, 3, 4, 5, 6]
    assert written["curve"][-1][1] < written["curve"][0][1]
    again = f"{line} sync_every=3 --checkpoint-every 2 --no-baseline --out kept".split()
    stops = [False] * 4 + [True]
    with monkeypatch.context() as patch:
        watch = _job.hosts.Watch
        patch.setattr(watch, "stops_before", lambda self, step: stops[step])
        assert "stopped before step 5" in invoke(*again).output
    resumed = invoke(*again, "--resume")
    assert resumed.exit_code == 0, resumed.output
    kept = json.loads(Path("kept/run.json").read_text())
    assert kept["curve"] == written["curve"]
    Path("mine.py").write_text(TASK.replace("1e-3", "2e-3"))
    other = invoke(*again, "--resume")
    assert other.exit_code == 2
    assert "the task's file (sha256)" in other.output


@pytest.mark.long
def test_transfers_of_a_model_with_a_state_have_an_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(TASK)
    line = "train --task mine.py:line --relaxation parameter_server --order tic"
    result = invoke(*line.split(), "--workers", "2", "--no-baseline")
    assert result.exit_code == 0, result.output
    assert "Transfers, order tic" in result.output


def test_a_broken_task_file_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def task(seed):\n    return 3")
    result = invoke("train", "--task", "mine.py", "--workers", "2")
    assert result.exit_code == 2
    assert "--task mine.py: task(seed) returns a value of type int" in result.output
    assert [f.name for f in tmp_path.iterdir() if f.suffix] == ["mine.py"]
    assert not (tmp_path / "runs").exists()


@pytest.mark.long
def test_models_that_stay_equal_pass_the_check(tmp_path):
    line = "train --relaxation power_sgd --workers 2 --steps 4 --no-baseline"
    result = invoke(*line.split(), "--check-every", "2", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*own index over:UserWarning")
def test_models_that_go_apart_end_the_run(tmp_path, monkeypatch):
    """A relaxation that reduces, and whose workers then step by different rates."""

    def by_worker(updates, params=None):
        return jax.tree.map(lambda u: u * (1 + lax.axis_index("data")), updates)

    def apart(options, train):
        own = optax.stateless(by_worker)
        return optax.chain(relaxjax.all_reduce("data"), train.optimizer, own)

    monkeypatch.setattr(_checked, "relaxed", apart)
    line = "train --workers 2 --steps 6 --no-baseline --check-every 2 --out"
    result = invoke(*line.split(), str(tmp_path))
    assert result.exit_code == 3
    assert "no longer hold the same params after step 2: leaf " in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "run.json").exists()


@pytest.mark.slow
def test_a_run_from_the_shell(tmp_path):
    done = command("train", "--workers", "8", "--steps", "60", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout  # no colors and no bar outside a terminal
    assert "no relaxation" in done.stdout
    assert "8 workers: step 60, loss " in done.stdout
    written = json.loads((tmp_path / "runs/digits-all_reduce-8/run.json").read_text())
    assert written["workers"] == 8
    assert written["metric"] > 0.8


@pytest.mark.slow
def test_an_unknown_relaxation_from_the_shell(tmp_path):
    done = command("train", "--relaxation", "allreduce", cwd=tmp_path)
    assert done.returncode == 2
    assert "Did you mean all_reduce?" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_without_the_extra_the_command_says_so(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", HIDE_TYPER + "m.main()"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    need = 'relaxjax needs its command-line extra: pip install "relaxjax[cli]"'
    assert done.stderr.splitlines() == [need]


@pytest.fixture
def entry(monkeypatch):
    """The entry point, which leaves Ctrl-C to the tests' own process."""
    from relaxjax import __main__, hosts

    monkeypatch.setattr(hosts, "install", lambda: None)
    return __main__


def test_the_entry_point_runs_the_application(monkeypatch, capsys, entry):
    monkeypatch.setattr(sys, "argv", ["relaxjax", "--help"])
    with pytest.raises(SystemExit) as leaves:
        entry.main()
    assert leaves.value.code == 0
    assert "train" in capsys.readouterr().out


def test_the_entry_point_refuses_to_run_without_the_extra(monkeypatch, capsys, entry):
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as leaves:
        entry.main()
    assert leaves.value.code == 2
    assert 'pip install "relaxjax[cli]"' in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = ["train", "--workers", "4", "--steps", "10", "--out"]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "relaxjax", *arguments, str(tmp_path / str(index))],
            env=environment(
                JAX_COORDINATOR_ADDRESS=address,
                JAX_NUM_PROCESSES="2",
                JAX_PROCESS_ID=str(index),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    texts = [process.communicate(timeout=300) for process in started]
    assert [process.returncode for process in started] == [0, 0], texts
    assert "no relaxation" in texts[0][0]
    assert "no relaxation" not in texts[1][0]  # the first alone prints and writes
    assert list((tmp_path / "1").iterdir()) == []
    alone = command(*arguments, str(tmp_path / "alone"), cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    two, one = (
        json.loads((tmp_path / name / "run.json").read_text())
        for name in ("0", "alone")
    )
    assert two["bytes_per_step"] == one["bytes_per_step"]
    for here, there in zip(two["curve"], one["curve"], strict=True):
        assert here == pytest.approx(there, rel=1e-3)

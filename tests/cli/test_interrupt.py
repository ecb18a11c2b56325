"""Ctrl-C at any moment: one line, status 130, and soon."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relaxjax import plan
from relaxjax.cli import _compare, _plan
from relaxjax.cli._app import app
from relaxjax.hosts import _interrupt

PROGRAM = """
import sys
from relaxjax import hosts
from relaxjax.__main__ import main
install = hosts.install
def told():
    install()
    print("entered", flush=True)
hosts.install = told
sys.argv = ["relaxjax", *sys.argv[1:]]
main()
"""
SHORT = ["--steps", "60", "--workers", "4", "--no-baseline"]
FAST = ["--workers=8", "--bandwidth-gbps=1"]
COMMANDS = {
    "train": ["train", "--relaxation", "diloco+quantize8", *SHORT, "--out", "run"],
    "train, saving": [*["train", "--checkpoint-every", "5", "--out", "saved"], *SHORT],
    "plan": ["plan", "--params=1e8", "--compute-ms=100", *FAST],
    "explain": ["explain", "diloco"],
    "order": ["order", "loss.py:loss", "--trace", "order.json"],
    "check": ["check", "my_topology.py"],
    "run": ["run", "-n", "2", "train", *SHORT, "--out", "several"],
    "compare": ["compare", "digits", "--steps", "20", "--workers", "2", "--out", "st"],
}
ONE = """
from relaxjax import topology
def mine(n: int) -> topology.Topology:
    return topology.ring(n)
"""
SAYS = [
    *["nothing was written", "no run was finished", "the same command goes on"],
    *["go on with --resume", "wrote", "have ended"],
]
LONGEST = 120  # seconds; a test ends by the program's end, or fails then
LOSS = """
import jax.numpy as jnp
def loss(params, x=jnp.ones((4, 8))):
    return jnp.sum(x @ params["w"])
def example_args():
    return ({"w": jnp.ones((8, 2))},)
"""


def start(
    code: str, *arguments: str, folder: Path | None = None
) -> subprocess.Popen[str]:
    """A program, which is killed, and so fails its test, if it does not end."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"NO_COLOR": "1", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
    )
    guard = threading.Timer(LONGEST, process.kill)
    guard.daemon = True
    guard.start()
    return process


def entered(process: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """The program, as soon as it says so."""
    assert process.stdout is not None
    assert process.stdout.readline() == "entered\n"
    return process


def begun(folder: Path, arguments: list[str]) -> subprocess.Popen[str]:
    """A command, as soon as `main` has been entered."""
    return entered(start(PROGRAM, *arguments, folder=folder))


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str], float]:
    """Status, lines on standard error and seconds after a Ctrl-C."""
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    lines = [line for line in err.splitlines() if line.startswith("relaxjax")]
    assert "Traceback" not in err, err
    return process.returncode, lines, time.monotonic() - began


def check(status: int, lines: list[str]) -> None:
    """Interrupted and said once, or over before the signal came."""
    assert status in (0, 130), (status, lines)
    if status:
        slow = ("stops before", "not ended yet")  # said while the end takes a while
        ends = [line for line in lines if not any(word in line for word in slow)]
        assert len(ends) == 1, lines
        says = (
            "nothing was written",
            "no run was",
            "goes on",
            "go on with --resume",
            "wrote",
            "have ended",
        )
        assert any(word in ends[0] for word in says), lines


@pytest.mark.parametrize("wait", [0.0, 1.5])
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "explain"])
@pytest.mark.few(4)
def test_a_command_ends_at_once(tmp_path, name, wait):
    (tmp_path / "loss.py").write_text(LOSS)
    (tmp_path / "my_topology.py").write_text(ONE)
    process = begun(tmp_path, COMMANDS[name])
    with suppress(subprocess.TimeoutExpired):
        process.wait(wait)
    status, lines, _ = ended(process)
    assert status == 130 or (wait and status == 0), lines  # it may be over by then
    check(status, lines)


def test_a_listener_hears_it_and_a_second_one_ends(tmp_path):
    """A loop that goes on after the first: Python runs, and says that it has heard."""
    code = """
import os, signal, time
from relaxjax import hosts
from relaxjax.hosts._interrupt import heard
hosts.install()
hosts.keeps(lambda: "half is kept", nothing="nothing")
# os.write: the signal may come while "entered" is being printed.
signal.signal(signal.SIGINT, lambda *_: (heard(), os.write(1, b"heard\\n")))
with hosts.listens("soon"):
    print("entered", flush=True)
    while True:
        time.sleep(0.01)
"""
    process = entered(start(code))
    assert process.stdout is not None
    assert process.stderr is not None
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "heard\n"
    assert process.stderr.readline() == "relaxjax: soon\n"
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err == "relaxjax: interrupted; half is kept\n"


@pytest.mark.long
def test_a_watch_listens_in_the_loop_alone():
    """Before it, an agreement to stop would come after minutes of compilation."""
    code = """
import time
from relaxjax import hosts
hosts.install()
with hosts.Watch(hosts.join()) as watch:
    print("entered", flush=True)
    while True:
        time.sleep(0.01)
"""
    status, lines, _ = ended(entered(start(code)))
    assert status == 130
    assert lines == ["relaxjax: interrupted; nothing was written"]


@pytest.mark.long
def test_what_came_too_late_for_the_loop_ends_after_it():
    code = """
import os, signal
from relaxjax import hosts
hosts.install()
with hosts.Watch(hosts.join()):
    with hosts.listens("soon"):
        os.kill(os.getpid(), signal.SIGINT)
        while not hosts.asked():
            pass
    hosts.end_if_asked()
print("went on")
"""
    process = start(code)
    out, err = process.communicate()
    assert process.returncode == 130
    assert err == "relaxjax: interrupted; nothing was written\n"
    assert not out


def test_a_hook_that_hangs_at_the_end_is_ended():
    code = """
import atexit, sys, time
from relaxjax import hosts
from relaxjax.__main__ import main
install = hosts.install
def hangs():
    print("entered", flush=True)
    time.sleep(600)
def and_hang():
    install()
    atexit.register(hangs)
hosts.install = and_hang
sys.argv = ["relaxjax", "check", "--skeleton", "topology", "/dev/null"]
main()
"""
    status, lines, _ = ended(entered(start(code)))
    assert status == 130
    assert lines[-1] == "relaxjax: interrupted; nothing was written"


STOPS = """
import signal, time
asked = []
signal.signal(signal.SIGINT, lambda *_: asked.append(0))
print("ready", flush=True)
while not asked:
    time.sleep(0.02)
"""


@pytest.mark.long
def test_a_job_whose_script_stops_by_itself_was_interrupted(tmp_path):
    (tmp_path / "stops.py").write_text(STOPS)
    process = begun(tmp_path, ["run", "-n", "1", "stops.py"])
    assert process.stdout is not None
    assert process.stdout.readline() == "[0] ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err.endswith("relaxjax run: interrupted by Ctrl-C; all have ended\n")


DEAF = """
import os, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
print(os.getpid(), flush=True)
while True:
    signal.pause()
"""


@pytest.mark.long
def test_processes_that_do_not_end_are_named_and_killed(tmp_path):
    (tmp_path / "deaf.py").write_text(DEAF)
    process = begun(tmp_path, ["run", "-n", "1", "deaf.py"])
    assert process.stdout is not None
    assert process.stderr is not None
    other = int(process.stdout.readline().removeprefix("[0] "))
    process.send_signal(signal.SIGINT)
    assert "the processes have not ended yet" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "all processes were killed" in err
    with pytest.raises(ProcessLookupError):
        os.kill(other, 0)


BUSY = {
    "in compiled code": "jax.jit(lambda x: jax.lax.while_loop(lambda _: True, "
    "lambda x: x + 1, x))(0).block_until_ready()",
    "in a callback": "jax.jit(lambda x: jax.pure_callback(lambda x: "
    "[time.sleep(0.01) for _ in range(10**6)] and x, x, x)"
    ")(jax.numpy.float32(0)).block_until_ready()",
}


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("work", BUSY.values(), ids=BUSY)
def test_it_ends_where_python_does_not_run(work, listens):
    listener = "signal.signal(signal.SIGINT, lambda *_: None)" if listens else ""
    inside = "with hosts.listens('soon'):" if listens else "if True:"
    code = (
        "import signal, time\nfrom relaxjax import hosts\nhosts.install()\n"
        f"{listener}\nimport jax\n{inside}\n print('entered', flush=True)\n {work}"
    )
    status, lines, _ = ended(entered(start(code)))
    assert status == 130
    assert lines == ["relaxjax: interrupted; nothing was written"]


FILES = {
    "order": [*COMMANDS["order"], "--png", "order.png"],
    "plan": [*COMMANDS["plan"], "--bucket-mb=8", "--chart", "chart.png"],
    "compare --skeleton": ["compare", "--skeleton", "task.py"],
    "check --skeleton": ["check", "--skeleton", "topology"],
    "check": ["check", "one.py", "--steps=0", "--draws=100", "--codec-mb=0.1"],
    "train": [
        *["train", "--steps", "2", "--workers", "2", "--checkpoint-every", "1"],
        *["--relaxation", "parameter_server", "--order", "tac", "--out", "run"],
    ],
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", FILES)
def test_every_file_that_was_written_is_named(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(_interrupt, "_now", _interrupt._Interrupt())
    monkeypatch.setattr(plan, "rank", lambda *_, **__: None)  # half a minute
    monkeypatch.setattr(plan, "winners", lambda path, *_, **__: path.write_text("."))
    monkeypatch.setattr(_plan, "show", lambda *_: None)
    inputs = {"loss.py": LOSS, "one.py": ONE}
    for file, text in inputs.items():
        Path(file).write_text(text)
    assert _interrupt.kept() == "nothing was written"
    result = CliRunner().invoke(app, FILES[name])
    assert result.exit_code == 0, result.output
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    files = {f for f in files - set(inputs) if "__pycache__" not in f}
    said = _interrupt.kept()
    assert files
    saved = [f for f in files if f.startswith("run/checkpoints")]
    assert all(f"{f}" in said for f in files - set(saved)), said
    assert bool(saved) == ("the checkpoint of step 2 is in run/checkpoints" in said)
    assert "perhaps not whole" not in said


def test_the_finished_runs_of_a_study_are_counted(tmp_path):
    assert _compare._kept(tmp_path) == ""
    (tmp_path / "results-1of2.jsonl").write_bytes(b"{}\n{}\n{")
    (tmp_path / "results-2of2.jsonl").write_bytes(b"{}\n")
    said = _compare._kept(tmp_path)
    assert said == f"3 finished runs are in {tmp_path}: the same command goes on"


@pytest.mark.parametrize("name", ["a" * 300, "\0", "no/folder"])
def test_a_file_that_could_not_be_begun_is_not_said_to_be(name, tmp_path, monkeypatch):
    """Asking whether it exists is an error as well, for some names."""
    monkeypatch.setattr(_interrupt, "_now", _interrupt._Interrupt())
    _interrupt.keeps(nothing="nothing was written")
    with (
        pytest.raises((OSError, ValueError)),
        _interrupt.writing(tmp_path / name) as none,
    ):
        (tmp_path / name).write_text(str(none))
    assert _interrupt.kept() == "nothing was written"


def test_a_file_that_is_half_written_is_said_to_be(tmp_path, monkeypatch):
    monkeypatch.setattr(_interrupt, "_now", _interrupt._Interrupt())
    with _interrupt.writing(tmp_path / "a.json"):
        assert _interrupt.kept() == "nothing was written"
        (tmp_path / "a.json").write_text("{")
        assert _interrupt.kept() == f"perhaps not whole: {tmp_path / 'a.json'}"
    assert _interrupt.kept() == f"wrote {tmp_path / 'a.json'}"


@pytest.mark.slow
@pytest.mark.parametrize("moments", [8, pytest.param(40, marks=pytest.mark.every)])
@pytest.mark.parametrize("name", COMMANDS)
def test_any_moment(tmp_path, name, moments, capsys):
    """From the entry of `main` to the end; prints what was seen."""
    (tmp_path / "loss.py").write_text(LOSS)
    (tmp_path / "my_topology.py").write_text(ONE)
    began = time.monotonic()
    begun(tmp_path, COMMANDS[name]).communicate()
    whole = time.monotonic() - began
    seen, longest = {0: 0, 130: 0}, 0.0
    for i in range(moments):
        for folder in tmp_path.glob("[rs]*"):
            shutil.rmtree(folder)
        process = begun(tmp_path, COMMANDS[name])
        with suppress(subprocess.TimeoutExpired):
            process.wait(whole * i / moments)
        status, lines, seconds = ended(process)
        check(status, lines)
        seen[status] += 1
        longest = max(longest, seconds)
    with capsys.disabled():
        print(f"\n{name}, {whole:.1f} s: {seen}, longest {longest:.2f} s")

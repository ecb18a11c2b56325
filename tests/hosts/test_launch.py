"""Local processes: their environment, their words, their end."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from relaxjax import hosts
from relaxjax.cli._app import app
from relaxjax.cli._run import bytes_of
from relaxjax.hosts import _crew

ROOT = Path(__file__).parents[2]


def launched(program: str, processes: int, **how: Any) -> tuple[hosts.Ended, list[Any]]:
    said: list[Any] = []
    ended = hosts.launch(
        [sys.executable, "-c", program],
        processes,
        say=lambda *line: said.append(line),
        **how,
    )
    return ended, sorted(said)


def test_environment_and_words():
    program = (
        "import os, sys; print(*(os.environ['JAX_' + k] for k in "
        "('NUM_PROCESSES', 'PROCESS_ID'))); print(os.environ['MORE'], file=sys.stderr)"
    )
    ended, said = launched(program, 2, environment={"MORE": "more"})
    assert ended == hosts.Ended(0, "")
    assert said == [
        (0, "stderr", "more"),
        (0, "stdout", "2 0"),
        (1, "stderr", "more"),
        (1, "stdout", "2 1"),
    ]


def test_the_first_that_fails_is_named_and_the_others_end():
    waits = "signal.pause()"
    for act, status, why in (
        ("sys.exit(3)", 3, "ended with status 3"),
        ("os.kill(os.getpid(), 9)", 137, "ended by SIGKILL"),
    ):
        program = (
            "import os, signal, sys\n"
            f"{act} if os.environ['JAX_PROCESS_ID'] == '1' else {waits}"
        )
        ended, _ = launched(program, 3, grace=0.1)
        assert ended.status == status
        assert ended.why.startswith("process 1 (pid ")
        assert ended.why.endswith(why)


@pytest.mark.long
def test_the_others_are_told_first():
    program = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(print('told')))\n"
        "print('ready', flush=True)\n"
        "sys.exit(3) if os.environ['JAX_PROCESS_ID'] == '1' else None\n"
        "while True: time.sleep(0.05)"
    )
    ended, said = launched(program, 2, grace=2)
    assert ended.status == 3
    assert (0, "stdout", "told") in said


def test_a_kill_is_named_before_what_it_took_along():
    class Dead:
        def __init__(self, code: int):
            self.returncode, self.pid = code, 7

        def poll(self) -> int:
            return self.returncode

    crew = _crew.Crew(print)
    dead: Any = [Dead(0), Dead(-6), Dead(1), Dead(-9)]
    crew._processes = dead
    assert crew._failed() == hosts.Ended(137, "process 3 (pid 7) ended by SIGKILL")


@pytest.mark.long
def test_those_that_do_not_listen_are_killed(monkeypatch):
    monkeypatch.setattr("relaxjax.hosts._crew._KILL_AFTER", 0.1)
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('deaf', flush=True)\n"
        "sys.exit(5) if os.environ['JAX_PROCESS_ID'] == '0' else None\n"
        "while True: signal.pause()"
    )
    ended, _ = launched(program, 2, grace=2)
    assert ended.status == 5


def test_signals_are_passed_on():
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.05)"  # a pause may begin just after the signal
    )
    ready = threading.Semaphore(0)

    def say(number: int, stream: str, line: str) -> None:
        ready.release()

    def stop() -> None:
        for _ in range(2):
            ready.acquire()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    before = signal.getsignal(signal.SIGTERM)
    ended = hosts.launch([sys.executable, "-c", program], 2, say=say)
    assert ended.status == 0
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    ("number", "leaves", "expected"),
    [
        (signal.SIGINT, 0, hosts.Ended(130, "interrupted by Ctrl-C")),
        (signal.SIGTERM, 0, hosts.Ended(0, "")),
        (signal.SIGINT, 3, None),
    ],
)
def test_after_ctrl_c_a_job_is_not_done(number, leaves, expected):
    """Also where every process stops by itself, and ends well."""
    program = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit({leaves}))\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.05)"
    )
    ready = threading.Semaphore(0)

    def stop() -> None:
        for _ in range(2):
            ready.acquire()
        os.kill(os.getpid(), number)

    threading.Thread(target=stop, daemon=True).start()
    command = [sys.executable, "-c", program]
    ended = hosts.launch(command, 2, say=lambda *_: ready.release())
    assert ended == (expected or hosts.Ended(leaves, ended.why))
    assert bool(ended.why) == bool(ended.status)


def test_a_signal_between_two_starts_reaches_both(monkeypatch):
    """It comes when the second process is about to be started."""
    start = subprocess.Popen
    count = []

    def late(*given: Any, **how: Any) -> Any:
        count.append(0)
        if len(count) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return start(*given, **how)

    monkeypatch.setattr(subprocess, "Popen", late)
    program = "import time; time.sleep(600)"
    ended = hosts.launch([sys.executable, "-c", program], 2, say=lambda *_: None)
    assert len(count) == 2
    assert ended.status == 128 + signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_links_are_made_starts_nothing(number, monkeypatch):
    closed = []

    class Slow(hosts.Loopback):
        def open(self, names: Any) -> Any:
            os.kill(os.getpid(), number)
            return super().open(names)

        def close(self) -> None:
            closed.append(0)

    monkeypatch.setattr(subprocess, "Popen", None)
    ended = hosts.launch(["true"], 2, links=Slow())
    assert ended == hosts.Ended(128 + number, "no process was started")
    assert closed == [0]


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="processes=0; it must be 1 or more"):
        hosts.launch(["true"], 0)
    assert bytes_of("200mbit") == 25e6
    assert bytes_of("1.5Gbit") == 1.5e9 / 8
    for wrong in (["-n", "0"], ["--rate", "20"], ["--rate", "0mbit"]):
        script = tmp_path / "script.py"
        script.write_text("")
        answer = CliRunner().invoke(app, ["run", *wrong, str(script)])
        assert answer.exit_code == 2
    answer = CliRunner().invoke(app, ["run", str(tmp_path / "none.py")])
    assert answer.exit_code == 2
    assert "none.py is not a file" in answer.output


def test_the_command(tmp_path, capfd):
    script = tmp_path / "script.py"
    script.write_text("import sys; print(sys.argv[1:]); sys.exit(4)")
    answer = CliRunner().invoke(app, ["run", "-n", "2", str(script), "a", "--b"])
    assert answer.exit_code == 4
    said = capfd.readouterr()
    assert "['a', '--b']" in answer.output + said.out


def test_lines_of_two_processes_never_join():
    """Each goes out by one write, whatever the other process says meanwhile."""
    count = 3000
    program = (
        "import sys\n"
        f"for i in range({count}):\n"
        "    print('line', i, 'x' * (i % 7), file=(sys.stdout, sys.stderr)[i % 3 == 0])"
    )
    launch = (
        "import sys; from relaxjax import hosts\n"
        f"hosts.launch([sys.executable, '-uc', {program!r}], 3)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", launch],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    said = ended.stdout.splitlines()
    expected = [
        f"[{n}] line {i} {'x' * (i % 7)}" for n in range(3) for i in range(count)
    ]
    assert sorted(said) == sorted(expected)

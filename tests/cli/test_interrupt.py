"""Ctrl-C at any moment: one line, status 130, and soon."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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
    "check": ["check", "my_topology.py"],
    "run": ["run", "-n", "2", "train", *SHORT, "--out", "several"],
}
SECONDS = {"run": 12.0}  # from the entry of `main` to the end, some; 8 for the others


def begun(folder: Path, arguments: list[str]) -> subprocess.Popen[str]:
    """A command, as soon as `main` has been entered."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"NO_COLOR": "1", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "entered\n"
    return process


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str], float]:
    """Status, lines on standard error and seconds after a Ctrl-C."""
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    lines = [line for line in err.splitlines() if line.startswith("relaxjax")]
    assert "Traceback" not in err, err
    return process.returncode, lines, time.monotonic() - began


def check(status: int, lines: list[str]) -> None:
    """Interrupted and said once, or over before the signal came."""
    assert status in (0, 130), (status, lines)
    if status:
        assert len(lines) == 1 or "run" in lines[-1], lines
        says = ("nothing", "saved", "go on", "have ended", "was due")
        assert any(word in " ".join(lines) for word in says), lines


@pytest.mark.parametrize("wait", [0.0, 1.5])
def test_a_command_ends_at_once(tmp_path, wait):
    process = begun(tmp_path, COMMANDS["train"])
    time.sleep(wait)
    status, lines, _ = ended(process)
    assert status == 130
    assert lines[0].startswith("relaxjax: interrupted; nothing")
    assert len(lines) == 1


def test_a_listener_hears_it_and_a_second_one_ends(tmp_path):
    """A loop that goes on after the first: Python runs, and says that it has heard."""
    code = """
import signal, time
from relaxjax import hosts
from relaxjax.hosts._interrupt import heard
hosts.install()
hosts.keeps("half is kept")
signal.signal(signal.SIGINT, lambda *_: (heard(), print("heard", flush=True)))
print("entered", flush=True)
while True:
    time.sleep(0.01)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "entered\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "heard\n"
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "relaxjax: interrupted; half is kept\n"


BUSY = {
    "in compiled code": "jax.jit(lambda x: jax.lax.while_loop(lambda _: True, "
    "lambda x: x + 1, x))(0).block_until_ready()",
    "in a callback": "jax.jit(lambda x: jax.pure_callback(lambda x: "
    "[time.sleep(0.01) for _ in range(10**6)] and x, x, x)"
    ")(jax.numpy.float32(0)).block_until_ready()",
}


@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("work", BUSY.values(), ids=BUSY)
def test_it_ends_where_python_does_not_run(work, listens):
    listener = "signal.signal(signal.SIGINT, lambda *_: None)" if listens else ""
    code = (
        "import signal, time\nfrom relaxjax import hosts\nhosts.install()\n"
        f"{listener}\nimport jax\nprint('entered', flush=True)\n{work}"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "entered\n"
    status, lines, _ = ended(process)
    assert status == 130
    assert lines == ["relaxjax: interrupted; nothing was written"]


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_forty_moments(tmp_path, name, capsys):
    """From the entry of `main` to the end; prints what was seen."""
    subprocess.run(
        [sys.executable, "-m", "relaxjax", "check", "--skeleton", "topology"],
        cwd=tmp_path,
        check=True,
    )
    seen, longest = {0: 0, 130: 0}, 0.0
    for i in range(40):
        for folder in tmp_path.glob("s*"):
            subprocess.run(["rm", "-rf", str(folder)], check=True)
        process = begun(tmp_path, COMMANDS[name])
        time.sleep(i / 40 * SECONDS.get(name, 8.0))
        over = process.poll() is not None
        if over:
            break
        status, lines, seconds = ended(process)
        check(status, lines)
        seen[status] += 1
        longest = max(longest, seconds)
    with capsys.disabled():
        print(f"\n{name}: {seen}, longest {longest:.2f} s")

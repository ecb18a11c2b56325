"""Commands whose output nobody reads any more: they end, without a word, with 141.

Those whose output goes to a full disk say so, and end with 74.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
ENVIRONMENT.pop("PYTHONUNBUFFERED", None)  # with it nothing is left at the end
LONGEST = 120  # seconds; a hang ends there
SCRIPT = """
import os, pathlib, time
pathlib.Path(f"started-{os.getpid()}").touch()
while True:
    print("a line", flush=True)
    time.sleep(0.01)
"""
WAYS = {
    "rich": "from rich.console import Console\nsay = Console().print",
    "typer": "from typer import echo as say",
    "print": "def say(text): print(text, flush=True)",
    "buffered": "def say(text): print(text, end='')",
}
IN_PIPES = """
import sys, typer
from relaxjax.cli.common._errors import quiet_pipes
{way}
app = typer.Typer(pretty_exceptions_enable=False)
@app.command()
def lines():
    sys.stdin.readline()
    for _ in range(3):
        say("a line")
with quiet_pipes():
    app()
"""


def unread(arguments: list[str], lines: int, folder: Path) -> tuple[int, str]:
    """Status and stderr of a program whose reader goes after some lines."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for _ in range(lines):
        assert process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    _, said = process.communicate("go on\n", timeout=LONGEST)
    return process.returncode, said


@pytest.mark.parametrize("way", WAYS)
def test_whatever_prints(way, tmp_path):
    program = IN_PIPES.format(way=WAYS[way])
    assert unread(["-c", program], 0, tmp_path) == (141, "")


@pytest.mark.parametrize(
    "lines", ["--help", pytest.param("explain all_reduce", marks=pytest.mark.long)]
)
def test_a_command_that_prints_once(lines, tmp_path):
    assert unread(["-m", "relaxjax", *lines.split()], 0, tmp_path) == (141, "")


@pytest.mark.long
@pytest.mark.few(4)
@pytest.mark.parametrize("command", ["run", "islands"])
def test_the_processes_of_a_command_end_as_well(command, tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    line = ["-m", "relaxjax", command, "-n", "2", "script.py"]
    status, said = unread(line, 4, tmp_path)
    assert (status, said) == (141, "")
    started = [int(p.name.partition("-")[2]) for p in tmp_path.glob("started-*")]
    assert len(started) == 2
    for number in started:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


@pytest.mark.slow
def test_training_ends_at_its_next_line(tmp_path):
    line = ["train", "--steps", "2000", "--workers", "1", "--no-baseline"]
    began = time.monotonic()
    assert unread(["-m", "relaxjax", *line, "--out", "run"], 1, tmp_path) == (141, "")
    assert time.monotonic() - began < LONGEST
    assert list((tmp_path / "run").iterdir()) == []


def test_other_errors_stay_as_they_are(tmp_path):
    program = IN_PIPES.format(way="def say(text): raise OSError(5, 'a broken disk')")
    status, said = unread(["-c", program], 0, tmp_path)
    assert status == 1
    assert "a broken disk" in said


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    ("way", "size", "both"),
    [("typer", 1, False), ("buffered", 1, True), ("rich", 10**4, False)],
)
def test_a_full_disk_is_named(way, size, both, tmp_path):
    program = IN_PIPES.format(way=WAYS[way]).replace("a line", "a" * size)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env=ENVIRONMENT,
            input="go on\n",
            stdout=full,
            stderr=full if both else subprocess.PIPE,
            text=True,
            timeout=LONGEST,
        )
    assert done.returncode == 74
    if not both:
        assert done.stderr == "relaxjax: cannot write: No space left on device\n"


def test_the_number_is_that_of_the_signal():
    assert signal.SIGPIPE == 141 - 128


NOISE = "import os\nos.write(1, b'a library speaks')\n"


def test_json_is_alone_on_stdout(tmp_path):
    """Gloo writes there by itself wherever processes meet."""
    code = f"""
from relaxjax.cli.common._stdout import stdout_alone
with stdout_alone(wanted=True):
    {NOISE.replace(chr(10), chr(10) + "    ")}
    print("[]")
print("after")
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=ENVIRONMENT
    )
    assert (run.stdout, run.returncode) == ("[]\nafter\n", 0), run.stderr
    assert run.stderr == "a library speaks"


@pytest.mark.long
def test_training_as_json_is_one_line_whatever_a_task_writes(tmp_path):
    (tmp_path / "task.py").write_text(
        NOISE + "from relaxjax.tasks import digits as task\n"
    )
    options = ["--steps", "2", "--workers", "2", "--no-baseline", "--json"]
    run = subprocess.run(
        [sys.executable, "-m", "relaxjax", "train", "--task", "task.py", *options],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        cwd=tmp_path,
        timeout=LONGEST,
    )
    assert run.returncode == 0, run.stderr
    assert len(json.loads(run.stdout)) == 1
    assert run.stdout.count("\n") == 1
    assert "a library speaks" in run.stderr

"""A process that has imported JAX takes the place of one that has ended."""

import sys

import numpy as np
import pytest

from relaxjax import islands
from relaxjax.islands.one import _read_settings as read_settings
from relaxjax.islands.started import _incarnations as places
from relaxjax.islands.started import _spare as spare
from relaxjax.islands.started import _supervise as supervising

SCRIPT = """
import sys

before = {"jax", "typer", "own"} & {*sys.modules}

import os, signal, time
import own, typer
from pathlib import Path

log, pid = Path(sys.argv[1]), os.getpid()
with log.open("a") as file:
    print(pid, sorted(before), sys.path[0], sys.stdin.read() == "", file=file)


def others():
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = place.read_bytes().split(bytes(1))
        except OSError:
            continue
        if int(place.parent.name) != pid and os.fsencode(log) in words:
            if b"relaxjax.islands.started._spare" in words and b"setpriv" not in words:
                yield place.parent.name


if len(log.read_text().splitlines()) == 1:
    while not (found := list(others())):
        time.sleep(0.05)
    log.with_suffix(".spare").write_text(found[0])
    os.kill(pid, signal.SIGKILL)
"""


def test_it_waits_before_the_script():
    command = ["python", "-u", "train.py", "-n", "2"]
    expected = ["python", "-u", "-m", spare.__name__, "train.py", "-n", "2"]
    assert spare.waiting(command) == expected


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_it_takes_the_place_of_one_that_was_killed(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(places, "_SPARE_AFTER", 0.0)
    script, log = tmp_path / "a folder" / "train.py", tmp_path / "log"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    (script.parent / "own.py").touch()
    command = [sys.executable, "-u", str(script), str(log)]
    place = f"folder:{tmp_path}/run"
    assert supervising.supervise(command, ["a"], place, spares=True) == 0
    assert "ended by SIGKILL; starting it again" in capfd.readouterr().err
    first, second = (line.split(" ", 1) for line in log.read_text().splitlines())
    assert first[0] != second[0] == log.with_suffix(".spare").read_text()
    assert first[1] == second[1] == f"['jax', 'typer'] {script.parent} True"


def test_settings_that_come_after_the_import_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(read_settings, "_imported_with", {"JAX_ENABLE_X64": "0"})
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    for name in read_settings._settings().keys() - {"JAX_ENABLE_X64"}:
        monkeypatch.delenv(name)
    where = {"x": np.zeros(2)}, f"folder:{tmp_path}/run", "a"
    with pytest.raises(ValueError, match=r"script sets JAX_ENABLE_X64.*leave --spares"):
        islands.join(*where, sync_every=2)
    monkeypatch.setenv("JAX_ENABLE_X64", "0")
    read_settings.require_read_settings()


def test_nobody_needs_it_any_more(monkeypatch):
    class Ended:
        def readline(self) -> str:
            return ""

    monkeypatch.setattr(read_settings, "_imported_with", None)
    monkeypatch.setattr(sys, "stdin", Ended())
    monkeypatch.setattr(sys, "argv", ["spare", "no/where.py"])
    monkeypatch.setattr(spare.runpy, "run_path", lambda *_, **__: pytest.fail("ran"))
    spare.main()

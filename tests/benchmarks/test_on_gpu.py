"""The script for GPUs runs, in small, wherever there is none."""

import json

import jax
import pytest

from benchmarks.gpu.record import Record
from scripts import on_gpu


@pytest.mark.slow
@pytest.mark.long
def test_every_part_runs_in_small_and_only_once(tmp_path, capsys):
    assert on_gpu.main(["--tiny", "--out", str(tmp_path)]) == 0
    every = [json.loads(path.read_text()) for path in tmp_path.iterdir()]
    written = {part["conditions"]["part"]: part for part in every}
    assert written.keys() == on_gpu.PARTS.keys()
    for part in written.values():
        assert part["conditions"]["jax"] == jax.__version__
        assert part["conditions"]["tiny"]
        assert part["rows"]
    facts = written["facts"]["rows"]
    for name, row in facts.items():
        if "residual" in row:
            assert row["residual"] > 1e-5, name
            assert row["conserved"] < 1e-6, name
            assert row["bytes"] == row["bytes stated"], name
    text = written["text"]["rows"]
    assert all(row["bytes a step"] > 0 for row in text.values())
    capsys.readouterr()
    assert on_gpu.main(["--tiny", "--part", "facts", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("is there") == len(facts)


def test_a_row_that_fails_is_named_and_leaves_the_others(tmp_path, capsys):
    record = Record(tmp_path, "part", 1.0, tiny=True)
    record.measure("one", lambda: {"x": 1 / 0})
    record.measure("two", lambda: {"x": 2})
    assert record.failed == ["one"]
    assert "ZeroDivisionError" in capsys.readouterr().out
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["rows"].keys() == {"two"}
    again = Record(tmp_path, "part", 1.0, tiny=True)
    again.measure("two", lambda: {"x": 3})
    assert again.rows["two"]["x"] == 2


def test_without_a_gpu_it_says_what_to_do(capsys):
    assert on_gpu.main([]) == 2
    assert "sees no GPU" in capsys.readouterr().err


def test_rows_with_flags_have_a_file_of_their_own(tmp_path, monkeypatch):
    for flags in ("", "--one=+A,+B"):
        monkeypatch.setenv("XLA_FLAGS", flags)
        Record(tmp_path, "part", 1.0, tiny=True).measure("row", lambda: {"x": 1})
    plain, flagged = sorted(tmp_path.iterdir(), key=lambda path: len(path.name))
    assert flagged.name == f"{plain.stem}-one-A-B.json"
    assert "flags" not in json.loads(plain.read_text())["conditions"]
    assert json.loads(flagged.read_text())["conditions"]["flags"] == "--one=+A,+B"

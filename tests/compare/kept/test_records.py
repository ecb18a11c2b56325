"""Records on disk: whole lines, torn lines, foreign lines."""

import json
import subprocess
import sys

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from relaxjax.compare.kept import _records
from tests.compare import studies

BASE = studies.records(studies.study())[0]


def record(key, **changes):
    return {**BASE, "key": key, **changes}


def lines(folder, name="results.jsonl"):
    return (folder / name).read_bytes().splitlines()


def test_what_is_appended_is_read(tmp_path):
    records = [record(str(i), validation=i / 3) for i in range(5)]
    for one in records:
        _records.append(tmp_path / "results.jsonl", one)
    assert _records.read(tmp_path) == records


@settings(max_examples=30, deadline=None)
@given(cut=st.integers(1, 30))
def test_a_torn_last_line_is_dropped_named_and_written_over(cut, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    path = folder / "results.jsonl"
    _records.append(path, record("a"))
    whole = path.read_bytes()
    line = json.dumps(record("b")).encode() + b"\n"
    path.write_bytes(whole + line[: min(cut, len(line) - 1)])
    with pytest.warns(UserWarning, match=r"results.jsonl: its last line is torn"):
        assert _records.read(folder) == [record("a")]
    _records.append(path, record("c"))
    assert [r["key"] for r in _records.read(folder)] == ["a", "c"]


WRITER = """
import pathlib, sys
from relaxjax.compare.kept import _records
for i in range(200):
    row = {"key": f"{sys.argv[2]}-{i}", "pad": "x" * 900}
    _records.append(pathlib.Path(sys.argv[1]), row)
"""


def test_two_processes_cut_nothing_off(tmp_path):
    path = tmp_path / "results.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), who]) for who in "ab"
    ]
    assert [writer.wait(120) for writer in writers] == [0, 0]
    assert len({json.loads(line)["key"] for line in lines(tmp_path)}) == 400


def test_shards_are_merged_and_no_key_stands_twice(tmp_path):
    _records.append(tmp_path / "results-1of2.jsonl", record("a"))
    _records.append(tmp_path / "results-2of2.jsonl", record("b"))
    _records.append(tmp_path / "results-2of2.jsonl", record("a"))
    assert [r["key"] for r in _records.read(tmp_path)] == ["a", "b"]


@pytest.mark.parametrize(
    "line", ["{", "3", "[]", '{"value": 1}', '{"key": "b"}', "\x00\x01"]
)
def test_a_foreign_line_is_named(tmp_path, line):
    whole = json.dumps(record("a"))
    (tmp_path / "results.jsonl").write_text(f"{whole}\n{line}\n")
    with pytest.raises(ValueError, match=r"results.jsonl:2 is not a record"):
        _records.read(tmp_path)


def test_keys_depend_on_all_that_decides():
    base = {"method": "all_reduce", "learning_rate": 0.1, "options": {"a": 1, "b": 2}}
    key = _records.key_of(**base)
    assert key == _records.key_of(**(base | {"options": {"b": 2, "a": 1}}))
    for change in ({"learning_rate": 0.2}, {"options": {"a": 1}}, {"code": "other"}):
        assert _records.key_of(**(base | change)) != key


def test_other_code_makes_other_keys(monkeypatch, tmp_path):
    (tmp_path / "compare").mkdir()
    (tmp_path / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(
        _records, "__file__", str(tmp_path / "compare/kept/_records.py")
    )
    before = _records.code_digest()
    (tmp_path / "a.py").write_text("x = 2\n")
    assert _records.code_digest() != before

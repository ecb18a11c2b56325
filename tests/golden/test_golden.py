"""Golden vectors are what slow NumPy says, and the runner tells who agrees."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from relaxjax import golden
from relaxjax.golden.__main__ import _as_json, main
from tests.golden import references

ROOT = Path(__file__).parent.parent.parent
# What public implementations do not agree with, and do not have.
DIFFERS = {
    "with_torch": {"cast, too large for float16", "PowerSGD, rank 1, zeros"},
    "with_optax": set(),
    "with_ml_dtypes": {"cast, too large for float16"},
}
COVERS = {"with_torch": 13, "with_optax": 1, "with_ml_dtypes": 5}
FIRST = {vector.function: vector for vector in reversed(golden.load())}
NEEDS = {"with_torch": "torch", "with_optax": "optax", "with_ml_dtypes": "ml_dtypes"}


def by_name(rows):
    return {row.name: row for row in rows}


def test_the_file_is_what_the_references_say():
    written = json.loads(references.FILE.read_text())["vectors"]
    computed = references.vectors()
    assert [row["name"] for row in written] == [row["name"] for row in computed]
    for old, new in zip(written, computed, strict=True):
        assert old | {"outputs": None} == new | {"outputs": None}
        assert old["outputs"].keys() == new["outputs"].keys()
        for name, x in new["outputs"].items():  # other machines round otherwise
            np.testing.assert_allclose(old["outputs"][name], x, 1e-12, 1e-14)


def test_names_are_unique():
    names = [vector.name for vector in golden.load()]
    assert len(set(names)) == len(names) >= 20


def test_published_numbers():
    outputs = {vector.name: vector.outputs for vector in golden.load()}
    x = outputs["min_max_uint8"]
    np.testing.assert_array_equal(x["codes"], [0, 85, 127, 255])
    np.testing.assert_allclose(x["decoded"][[0, 2]], [-1.000000033, 0.494117664], 1e-8)
    low_rank = outputs["PowerSGD, rank 1, warm start"]["approximation"]
    np.testing.assert_allclose(low_rank[0], [[1.6, 0.4], [0.8, 0.2]])
    np.testing.assert_allclose(low_rank[2, 0], [1.998048780, 0.031219512], 1e-8)
    sent = outputs["momentum correction"]["sent"]
    np.testing.assert_allclose(sent.sum(axis=1), [-3, 5.8, -8.7, 9.049])
    outer = outputs["outer Nesterov"]["params"][:, 0]
    np.testing.assert_allclose(outer, [-1.33, -3.227, -5.6343, -8.50087, -11.780783])
    slow = outputs["slow momentum"]["params"][:, 0]
    np.testing.assert_allclose(slow, [0.7, 0.25, -0.275, -0.8375])
    np.testing.assert_allclose(outputs["delay compensation"]["params"], [0.792])
    np.testing.assert_allclose(outputs["Adasum of two"]["sum"], [1.25, 0.75])
    pair = outputs["exact diffusion"]["params"]
    np.testing.assert_allclose(pair[-1], [0.1414625, 0.5463375])
    quasi = outputs["quasi-global momentum"]["params"]
    np.testing.assert_allclose(quasi[:, 0], [0.1, 0.199, 0.29611])


@pytest.mark.few(12)
@pytest.mark.parametrize("rule", FIRST)
def test_relaxjax_passes_one_vector_of_each_rule(rule):
    (row,) = golden.compare(golden.implementation, [FIRST[rule]])
    assert row.status == "pass", row


@pytest.mark.slow
def test_relaxjax_passes():
    rows = golden.compare(golden.implementation, golden.load())
    bare = {"cast, float8_e4m3fn"}  # there is a form with scales alone
    assert {row.name for row in rows if row.status == "not covered"} == bare
    assert {row.name for row in rows if row.status != "pass"} == bare, rows


@pytest.mark.parametrize("name", NEEDS)
def test_public_implementations(name):
    pytest.importorskip(NEEDS[name])
    module = importlib.import_module(f"examples.golden.{name}")
    rows = golden.compare(module.implementation, golden.load())
    assert not [row for row in rows if row.status == "error"]
    assert {row.name for row in rows if row.status == "differs"} == DIFFERS[name], rows
    assert sum(row.status != "not covered" for row in rows) == COVERS[name]


def ruined(name, config, inputs):
    """Agrees but for a scale, a NaN, a shape, an output and an error."""
    found = golden.implementation(name, config, inputs)
    if name == "top_k":
        return {"decoded": np.asarray(found["decoded"]) * 1.001}
    if name == "min_max_uint8":
        return {"decoded": np.full(4, np.nan)}
    if name == "adasum":
        return {"sum": np.zeros(3)}
    if name == "nesterov_outer":
        return {"weights": 1}
    if name == "slow_momentum":
        raise RuntimeError("out of luck")
    return found


@pytest.mark.slow
def test_what_is_wrong_is_told():
    found = by_name(golden.compare(ruined, golden.load()))
    assert found["quantize, 8 bits"].status == "pass"
    assert found["top_k"].status == "differs"
    assert 0 < found["top_k"].error < 0.01
    assert found["min_max_uint8"].status == "differs"
    assert "decoded[0] is nan, not -1" in found["min_max_uint8"].detail
    assert "shape (3,), not (2,)" in found["Adasum of two"].detail
    assert "returned none of params" in found["outer Nesterov"].detail
    assert found["slow momentum"].detail == "RuntimeError: out of luck"
    assert found["slow momentum"].status == "error"


def test_an_infinite_error_is_null_in_json():
    rows = json.loads(_as_json([golden.Outcome("x", "differs", np.inf, "far off")]))
    assert rows[0]["error"] is None


def test_an_imaginary_part_is_no_rounding():
    (vector,) = [v for v in golden.load() if v.name == "top_k"]
    (row,) = golden.compare(
        lambda *_: {"decoded": vector.outputs["decoded"] + 1j}, [vector]
    )
    assert row.status == "error"
    assert (
        row.detail == "TypeError: decoded is complex, and all golden vectors are real"
    )


@pytest.mark.slow
def test_the_command(capsys):
    assert main(["--implementation", "examples.golden.with_optax:implementation"]) == 0
    shown = capsys.readouterr().out
    assert "outer Nesterov" in shown
    assert "pass 1, differs 0, error 0, not covered" in shown.splitlines()[-1]
    arguments = ["--implementation", "tests.golden.test_golden:ruined", "--json"]
    assert main(arguments) == 1
    rows = json.loads(capsys.readouterr().out)
    assert {"differs", "error", "pass"} <= {row["status"] for row in rows}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--implementation", "nowhere"], "must be MODULE:FUNCTION"),
        (["--implementation", "no_such_module:f"], "no_such_module"),
        (["--implementation", "json:nothing"], "must be MODULE:FUNCTION"),
        (["--implementation", "boom:f"], "boom cannot be imported: it raised Runti"),
        (["--vectors", "nothing.json"], "nothing.json"),
        (["--vectors", "README.md"], "README.md is not JSON"),
        (["--vectors", "old.json"], "has format 0, and this runner reads 1"),
    ],
)
def test_mistakes_of_the_command(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "boom.py").write_text("raise RuntimeError('boom')")
    (tmp_path / "README.md").write_text("# not JSON")
    (tmp_path / "old.json").write_text('{"format": 0}')
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_in_a_process():
    done = subprocess.run(
        [sys.executable, "-m", "relaxjax.golden"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr

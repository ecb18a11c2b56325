"""`relaxjax check` as a user meets it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from relaxjax.check import _quality
from relaxjax.cli import app

PLAIN = {"NO_COLOR": "1", "COLUMNS": "160", "TERM": "dumb"}
GRAPH = """
import numpy as np
from relaxjax.topology import Topology

def mine(n) -> Topology:
    return Topology.of_matrices("mine", np.full((1, n, n), WEIGHT / n))

CHECK = {"<[mine]>": mine}
"""


def invoke(*arguments: str | Path):
    return CliRunner().invoke(app, ["check", *map(str, arguments)], env=PLAIN)


@pytest.fixture
def few_references(monkeypatch):
    monkeypatch.setattr(_quality, "OVER_GRAPHS", ("all_reduce",))


@pytest.mark.long
def test_a_skeleton_is_written_checked_and_shown(tmp_path, few_references):
    file, out = tmp_path / "mine.py", tmp_path / "deep" / "out"
    written = invoke("--skeleton", "topology", file)
    assert written.exit_code == 0
    assert "def two_hops(workers: int) -> Topology" in file.read_text()
    again = invoke("--skeleton", "topology", file)
    assert again.exit_code == 2
    assert "exists already" in again.output
    result = invoke(file, "--out", out, "--steps", "3")
    assert result.exit_code == 0, result.output
    assert "two_hops, a topology" in result.output
    assert "all laws hold" in result.output
    report = json.loads((out / "check.json").read_text())
    assert [row["label"] for row in report["quality"]] == [
        "all_reduce",
        "gossip@two_hops",
    ]
    assert all(row["loss"] > 0 < row["metric"] for row in report["quality"])
    assert report["quality"][0]["bytes_per_step"] == 182896  # of 26122 float32, a ring
    (subject,) = report["subjects"]
    assert subject["bytes"][0]["stated"] == subject["bytes"][0]["compiled"] == 4 * 4099
    page = (out / "check.html").read_text()
    assert "all laws hold" in page
    assert "data:image/png;base64," in page
    assert "http" not in page.partition("<img")[0]
    assert (out / "check.png").read_bytes().startswith(b"\x89PNG")


def test_a_refuted_law_ends_with_1_and_its_counterexample_is_escaped(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(GRAPH.replace("WEIGHT", "0.5"))
    result = invoke(file, "--out", tmp_path, "--steps", "0", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report == json.loads((tmp_path / "check.json").read_text())
    laws = {law["law"]: law for law in report["subjects"][0]["laws"]}
    case = laws["rows sum to 1"]["counterexample"]
    assert case["where"] == {"workers": 2, "round": 0, "row": 0}
    assert case["expected"] == "1"
    assert case["seen"] == "0.5, of [0.25 0.25]"
    page = (tmp_path / "check.html").read_text()
    assert "some law is refuted" in page
    assert "&lt;[mine]&gt;, a topology" in page
    assert "expected 1, seen 0.5, of [0.25 0.25]" in page
    table = invoke(file, "--out", tmp_path, "--steps", "0")
    assert table.exit_code == 1
    assert "refuted" in table.output
    assert "<[mine]>, a topology" in table.output


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1", "defines nothing to check"),
        ("x = ", "SyntaxError"),
        ("CHECK = {'a': 3}", "CHECK['a'] is int"),
        ("CHECK = {'a': lambda: 3}", "a returned int, which is not a Compressor"),
        ("CHECK = {'a': lambda b: 3}", "a needs 'b', and only axis_name, workers"),
        ("CHECK = {'a': lambda: 1 / 0}", "it raised ZeroDivisionError"),
        ("import optax\nBYTES = {'b': 1}\nCHECK = {'a': optax.identity}", "names 'b'"),
        (
            "import optax\nCLAIMS = {'a': ['pace']}\nCHECK = {'a': optax.identity}",
            "may claim same, mean, alone",
        ),
    ],
)
def test_what_cannot_be_checked_ends_with_2(source, message, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(source)
    result = invoke(file, "--out", tmp_path)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", " ").split())


@pytest.mark.long
def test_no_file_and_no_folder_end_with_2(tmp_path):
    assert "name a file to check" in invoke().output
    assert "no such file" in invoke(tmp_path / "none.py").output
    file = tmp_path / "mine.py"
    file.write_text(GRAPH.replace("WEIGHT", "1"))
    result = invoke(file, "--out", file, "--steps", "0")
    assert result.exit_code == 2
    assert "cannot write there" in result.output
    missing = invoke("--skeleton", "topology", tmp_path / "none" / "mine.py")
    assert missing.exit_code == 2
    assert "cannot write" in missing.output

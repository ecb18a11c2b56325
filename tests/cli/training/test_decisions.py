"""`relaxjax train` under a controller: written, repeated, and gone on with."""

import json
import os
import subprocess
import sys

import pytest

from tests.cli.training.test_resume import (
    SHORT,
    record,
    refused,
    run,
    stopped_at_the_tenth_point,
)

ADA = ["--relaxation", "local_sgd", "--periods", "ada_comm:start=3"]
SELDOM = ["--relaxation", "local_sgd", "--periods", "ada_comm:start=16"]
RANKS = ["--relaxation", "power_sgd", "--ranks", "accordion:low=1,high=2,every=5"]
ERRORS = ["--relaxation", "power_sgd", "--ranks", "l_greco:rank=1,every=5"]
CODES = [
    *("--relaxation", "all_reduce@two_shot"),
    *("--codes", "accordion:low=2,high=8,every=5"),
]
DECISIONS = "decisions.json"


def table(folder) -> list:
    return json.loads((folder / DECISIONS).read_text())["table"]


@pytest.mark.few(8)
@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [ADA, SELDOM, RANKS, ERRORS, CODES],
    ids=["periods", "stopped before a decision", "ranks", "errors", "codes"],
)
def test_a_record_repeats_the_run_and_a_stopped_run_goes_on(
    options, tmp_path, monkeypatch
):
    whole, again, part = (tmp_path / x for x in ("whole", "again", "part"))
    assert "decisions.json is what was decided" in " ".join(
        run(*options, "--out", str(whole)).split()
    )
    assert (len(table(whole)) > 1) == (options is not SELDOM)
    recorded = [*options[:3], f"recorded:{whole / DECISIONS}"]
    run(*recorded, "--out", str(again))
    assert record(again) == record(whole)

    resumable = [*options, "--out", str(part), "--checkpoint-every", "7"]
    stopped_at_the_tenth_point(monkeypatch, *resumable)
    run(*resumable, "--resume")
    assert record(part) == record(whole)
    assert (part / DECISIONS).read_text() == (whole / DECISIONS).read_text()


def test_what_counts_other_steps_is_refused(tmp_path):
    out = ["--out", str(tmp_path)]
    for other in (["--accumulate", "2"], ["--skip-nonfinite"]):
        said = refused(*ADA, *out, *other)
        assert "counts other steps" in said
        assert other[0] in said


def test_what_is_no_record_is_refused(tmp_path):
    (tmp_path / "a.json").write_text("{}")
    for name in ("a.json", "b.json"):
        text = f"recorded:{tmp_path / name}"
        said = refused("--relaxation", "local_sgd", "--periods", text)
        assert name in said


def test_decisions_of_an_earlier_run_are_not_mixed(tmp_path):
    (tmp_path / DECISIONS).write_text("{}")
    assert DECISIONS in refused(*ADA, "--out", str(tmp_path))


@pytest.mark.parametrize("ranks", ["--set rank=1000", "--ranks table:0=1000"])
def test_what_init_refuses_is_a_message(ranks, tmp_path):
    options = ["--relaxation", "power_sgd", *ranks.split(), "--out", str(tmp_path)]
    assert "compresses none of the leaves" in " ".join(refused(*options).split())


@pytest.mark.few(4)
@pytest.mark.long
@pytest.mark.parametrize("options", [ADA, ERRORS], ids=["periods", "errors"])
def test_several_processes_decide_as_one(options, tmp_path):
    """Each from the same means; the first one writes."""
    one, several = tmp_path / "one", tmp_path / "several"
    run(*options, "--out", str(one))
    command = [sys.executable, "-m", "relaxjax", "run", "-n", "2", *SHORT]
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    ended = subprocess.run(
        [*command, *options, "--out", str(several)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=180,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert table(several) == table(one)
    assert record(several)["loss"] == pytest.approx(record(one)["loss"], rel=1e-4)


@pytest.mark.long
def test_decisions_that_end_before_the_checkpoint_are_refused(tmp_path, monkeypatch):
    """The controller was asked, and would never be asked again."""
    resumable = [*ADA, "--out", str(tmp_path), "--checkpoint-every", "7"]
    stopped_at_the_tenth_point(monkeypatch, *resumable)
    whole = json.loads((tmp_path / DECISIONS).read_text())
    *rest, last = [row for row in whole["decisions"] if row[0] <= 14]
    older = json.dumps(whole | {"decisions": rest})
    (tmp_path / DECISIONS).write_text(older)
    said = " ".join(refused(*resumable, "--resume").split())
    assert f"the decisions end before step {last[0]}" in said

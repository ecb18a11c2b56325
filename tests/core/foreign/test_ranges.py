"""Numbers beyond all sense: refused by the same range wherever they are given."""

import numpy as np
import pytest
from typer.testing import CliRunner

import relaxjax
from relaxjax import compare, plan, schedule, topology
from relaxjax._core.foreign._ranges import SECONDS, WORKERS
from relaxjax.cli import app
from relaxjax.local_updates._rows import _turns
from relaxjax.plan import Model, Network
from relaxjax.plan._candidates import candidates

MANY = 9_999_999_999
FIGURES = ["plan", "--params=1e6", "--compute-ms=9", "--bandwidth-gbps=9"]
CALLS = {
    "emulate": lambda: relaxjax.emulate(MANY),
    "emulate, two axes": lambda: relaxjax.emulate({"a": 2**10, "b": 2**10}),
    "ring": lambda: topology.ring(MANY),
    "torus": lambda: topology.torus((2**10, 2**10)),
    "Network": lambda: Network(workers=MANY),
    "Study": lambda: compare.Study("digits", ["all_reduce"], workers=MANY),
}


@pytest.mark.parametrize("name", CALLS)
def test_workers(name):
    with pytest.raises(ValueError, match=f"{WORKERS.most}"):
        CALLS[name]()


@pytest.mark.parametrize("make", [topology.complete, topology.shift_one])
def test_graphs_of_all_pairs_are_smaller(make):
    with pytest.raises(ValueError, match="n=5000 must be a whole number, 4096 or less"):
        make(5000)


def test_seconds():
    for make in (
        lambda: schedule.Link(latency=1e300),
        lambda: Model.of_size(10, compute=2 * SECONDS.most),
        lambda: compare.Study("digits", ["all_reduce"], compute=1e300),
    ):
        with pytest.raises(ValueError, match=r"1000000000|1e\+09"):
            make()
    schedule.Link(latency=SECONDS.most)


def test_params():
    with pytest.raises(ValueError, match="parameters, 1000000000000 or less"):
        Model.of_size(10**30, compute=0.1)


LINES = {
    "--workers 9999999999": [*FIGURES, "--workers=9999999999"],
    "params": ["plan", "--params=1e30", *FIGURES[2:], "--workers=8"],
    "latency must": [*FIGURES, "--workers=8", "--latency-ms=1e308"],
    "codec-gbs": [*FIGURES, "--workers=8", "--codec-gbs=1e300"],
    "bucket-mb": [*FIGURES, "--workers=8", "--bucket-mb=1e308"],
    "'--workers'": ["explain", "gossip@ring", "--workers=1000000"],
    "--random-orders": ["order", "x.py:f", "--random-orders=1000000000"],
    "'--islands'": ["islands", "-n", "100000000", "x.py"],
    "-n 2000": ["run", "-n", "2000", "x.py"],
    "--grace 1e+308": ["run", "--grace", "1e308", "x.py"],
    "--rate": ["run", "--rate", "9" * 400 + "gbit", "train"],
    "tune must": ["compare", "digits", "--relaxation=all_reduce", "--tune=3000"],
    "seeds must": ["compare", "digits", "--relaxation=all_reduce", "--seeds=100000"],
    "--bucket-mb 1e+308": ["train", "--bucket-mb=1e308"],
    "--stuck-after 1e+30": ["train", "--stuck-after=1e30"],
    "--accumulate": ["train", "--accumulate=99999999999999999999"],
    "--steps": ["train", "--steps=99999999999999999999"],
    "complete: n=100000": ["train", "--workers=100000", "--relaxation=gossip@complete"],
}


@pytest.mark.parametrize("says", LINES)
def test_command_lines(says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, LINES[says])
    assert result.exit_code == 2, result.exception
    assert says.removeprefix("--workers ") in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


def test_a_plan_leaves_out_programs_that_grow_with_workers():
    def names(workers: int) -> set[str]:
        link = schedule.Link(1e-4, 1.25e8)
        found = candidates(Network(workers=workers, link=link))
        return {candidate.relaxation for candidate in found}

    gone = names(64) - names(65)
    assert {"asynchronous_diloco", "heloco"} <= gone
    assert gone <= {"asynchronous_diloco", "heloco", *_even(names(64))}


def _even(names: set[str]) -> set[str]:
    """Over graphs for an even number of workers, or a power of 2."""
    return {name for name in names if "@" in name or "gossip" in name}


@pytest.mark.long
def test_a_plan_of_ten_billion_params_fits_in_int32():
    """A single bucket of all of them has more elements than an int32 counts."""
    network = Network(workers=4, link=schedule.Link(1e-4, 1.25e8))
    ranking = plan.rank(Model.of_size(10**10, compute=0.02), network)
    assert max(r.prediction.bucket_bytes for r in ranking.rows) <= 2**32


def test_turns_are_a_table_of_all_workers():
    for workers, every in ((1, 1), (3, 8), (8, 8), (17, 4)):
        due = [-(-(i + 1) * every // workers) - 1 for i in range(workers)]
        table = _turns(workers, every)
        for step, row in enumerate(table):
            here = [i for i in range(workers) if due[i] == step]
            np.testing.assert_array_equal(row[row >= 0], here)

"""`relaxjax plan`: figures in, a ranking out; nonsense is one line."""

import json
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from relaxjax import plan
from relaxjax.cli._app import app
from relaxjax.cli.printed import _plan_table
from relaxjax.cli.printed._plan_table import _caption
from relaxjax.schedule import Link

ASKED = ["--params", "25e6", "--compute-ms", "300", "--workers", "8"]
SLOW = [*ASKED, "--bandwidth-gbps", "0.5", "--latency-ms", "0.1"]
FAST = [*ASKED, "--bandwidth-gbps", "400", "--latency-ms", "0.01"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """However slow this machine is."""
    monkeypatch.setattr(_plan_table, "_QUICK", 60)


def run(*arguments: str):
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_in_a_pipe_a_line_says_what_takes_long(monkeypatch, capsys):
    monkeypatch.setattr(_plan_table, "_QUICK", 0.01)
    before, until = threading.enumerate(), time.monotonic() + 60
    with _plan_table.busy("ranking"):
        while {*threading.enumerate()} - {*before} and time.monotonic() < until:
            time.sleep(0.01)  # what is written while capsys reads is lost
    assert capsys.readouterr().err == "relaxjax: ranking ...\n"
    monkeypatch.setattr(_plan_table, "_QUICK", 60)
    with _plan_table.busy("ranking"):
        pass  # it is quick
    after = [t for t in threading.enumerate() if isinstance(t, threading.Timer)]
    assert {*after} <= {*before}
    assert capsys.readouterr().err == ""


@pytest.mark.long
def test_json():
    report = json.loads(run(*SLOW, "--json"))
    assert report["inputs"]["params"] == 25_000_000
    assert report["inputs"]["bandwidth_gbps"] == 0.5
    names = [row["relaxation"] for row in report["ranking"]]
    assert {"all_reduce", "gossip", "gossip+quantize8", "local_sgd"} <= set(names)
    times = [row["step_ms"] for row in report["ranking"]]
    assert times == sorted(times)
    keys = {"relaxation", "step_ms", "bytes_per_step", "quality", "why", "tx"}
    assert all(keys <= set(row) for row in report["ranking"])


def test_the_table_and_the_line_to_paste():
    output = run(*FAST, "--top", "3")
    assert "Plain all-reduce is best here" in output
    assert 'tx = optax.chain(relaxjax.all_reduce("data"), optimizer)' in output
    assert "* all_reduce" in output
    assert "more: --top" in output


def test_the_table_says_why_faster_rows_are_not_the_choice():
    report = json.loads(run(*SLOW, "--json"))
    choice = report["choice"]["step_ms"]
    faster = sum(row["step_ms"] < choice for row in report["ranking"])
    assert faster > 5
    said = " ".join(run(*SLOW, "--top", "2").split())
    assert f"{faster} faster ones are not allowed by --quality or --memory-gb." in said
    assert "not allowed" not in run(*SLOW, "--top", "2", "--quality", "unmeasured")


@pytest.mark.parametrize(("refused", "words"), [(1, "1 faster one is"), (31, "31 ")])
def test_the_table_counts_in_english(refused, words):
    plain = SimpleNamespace(label="plain", seconds=2.0)
    faster = [SimpleNamespace(label=str(i), seconds=1.0) for i in range(refused)]
    rows = SimpleNamespace(rows=[*faster, plain], choice=plain, allowed=["plain"])
    said = _caption(cast(Any, rows))
    assert f" {words}" in said
    assert ("ones are" in said) == (refused > 1)


INSIDE = ["--tensor", "4", "--layers", "2", "--width", "64", "--tokens", "8"]


def test_legs_inside_a_split_model():
    network = plan.Network(workers=8, link=Link(1e-4, 6.25e7, 6.0 * 2**20))
    model = plan.Model.of_size(25_000_000, compute=0.3)
    sizes = {"layers": 2, "width": 64, "tokens": 8}
    legs = plan.split(model, network, tensor=4, **sizes)
    report = json.loads(run(*SLOW, *INSIDE, "--json"))
    assert report.pop("inputs")["width"] == 64
    assert report == legs.told()
    output = run(*SLOW, *INSIDE)
    assert "tensor 4" in output
    assert "e4m3, e5m2" in output
    assert "0.10 GB of params" in output


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--tensor", "2"], "--layers is needed"),
        ([*INSIDE, "--sharded"], "a split model has no --sharded"),
        ([*INSIDE, "--memory-gb", "0"], "a split model has no --memory-gb"),
        ([*INSIDE, "--experts-per-token", "2"], "experts_per_token=2 with expert=1"),
        (["--xla-flags", "--json"], "--xla-flags has no --json"),
        ([*INSIDE, "--bucket-mb", "0"], "a split model has no --bucket-mb"),
        ([*INSIDE, "--tensor", "3"], "groups of 3 workers, and workers=8"),
    ],
)
def test_legs_that_cannot_be_planned(more, said):
    result = CliRunner().invoke(app, ["plan", *SLOW, *more])
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.slow
def test_flags_of_xla_are_all_that_is_printed():
    """For this network, and buckets of the choice."""
    output = run(*FAST, "--bucket-mb", "3", "--xla-flags")
    network = plan.Network(workers=8, link=Link(1e-5, 5e10))
    assert output == plan.xla_flags(network, 3 * 2**20) + "\n"


def test_flags_of_xla_know_no_window_that_nobody_stated():
    """A short link of 450 GB/s, of which one stream of TCP would be seen as 314."""
    asked = ["--params", "1e6", "--compute-ms", "15", "--workers", "8"]
    asked += ["--bandwidth-gbps", "3600", "--latency-ms", "0.01", "--xla-flags"]
    assert "nic_speed_gbps=450," in run(*asked)
    assert "nic_speed_gbps=104.858," in run(*asked, "--window-mb", "2")


def test_hosts_have_relaxations_of_their_own():
    report = json.loads(run(*SLOW, "--workers-per-host", "4", "--json"))
    names = {row["relaxation"] for row in report["ranking"]}
    assert "all_reduce@hierarchical" in names


@pytest.mark.slow
def test_a_network_from_a_file(tmp_path):
    path = tmp_path / "network.json"
    plan.Network(workers=4, link=Link(1e-3, 1e7), overlap=False).save(path)
    arguments = [
        "--params",
        "1e6",
        "--compute-ms",
        "10",
        "--network",
        str(path),
        "--json",
    ]
    report = json.loads(run(*arguments))
    assert report["inputs"]["workers"] == 4
    assert report["inputs"]["bandwidth_gbps"] == pytest.approx(0.08)
    assert not report["inputs"]["overlap"]


@pytest.mark.slow
def test_a_chart(tmp_path):
    path = tmp_path / "winners.png"
    run("--params", "1e5", *SLOW[2:], "--chart", str(path), "--json")
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([*ASKED], "workers and bandwidth-gbps are needed"),
        ([*ASKED, "--bandwidth-gbps", "0"], "bandwidth-gbps=0.0 must be"),
        ([*ASKED, "--bandwidth-gbps", "nan"], "bandwidth-gbps=nan must be"),
        ([*SLOW, "--latency-ms", "-1"], "latency must be"),
        ([*SLOW, "--latency-ms", "nan"], "latency must be"),
        ([*SLOW, "--compute-ms", "0"], "compute=0.0 must be"),
        ([*SLOW, "--params", "0.5"], "params=0.5 must be"),
        ([*SLOW, "--params", "inf"], "params=inf must be"),
        ([*SLOW, "--params", "300MB"], "params='300MB' must be a number, as in"),
        ([*SLOW, "--params", ""], "as in 40k, 300M or 1.5B"),
        ([*SLOW, "--params", "1.2345k"], "params=1234.5 must be a whole number"),
        ([*SLOW, "--workers", "-3"], "workers=-3 must be"),
        ([*SLOW, "--workers-per-host", "3"], "do not fill hosts"),
        ([*SLOW, "--bucket-mb", "0"], "bucket-mb=0.0 must be"),
        ([*SLOW, "--criterion", "nicest"], "criterion='nicest' is not one of"),
        ([*SLOW, "--memory-gb", "0.1"], "closest is all_reduce"),
        ([*SLOW, "--network", "none.json"], "give the file, or the figures"),
        (
            [*ASKED[:4], "--network", "none.json", "--latency-ms", "1"],
            "network=none.json says what latency_ms say as well",
        ),
        (
            [*ASKED[:4], "--network", "none.json", "--no-overlap"],
            "network=none.json says what overlap say as well",
        ),
        (
            ["--params", "9", "--compute-ms", "1", "--network", "none.json"],
            "none.json cannot be read as a network",
        ),
    ],
)
def test_nonsense_is_one_line(arguments, says):
    result = CliRunner().invoke(app, ["plan", *arguments])
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "count"), [("40k", 40_000), ("1.13M", 1_130_000), ("1.5b", 1.5e9)]
)
def test_a_count_of_params_may_end_in_a_unit(text, count):
    told = json.loads(run("--params", text, *SLOW[2:], "--json"))
    assert told["inputs"]["params"] == count


def test_figures_of_train_and_plan_have_the_same_names():
    """A plan's names are understood by `relaxjax train`."""
    help_ = CliRunner().invoke(app, ["train", "--help"]).output
    for name in ("all_reduce", "gossip", "local_sgd", "power_sgd"):
        assert name in help_


@pytest.mark.slow
def test_it_runs_as_a_program():
    command = [sys.executable, "-m", "relaxjax", "plan", *FAST, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["choice"]["relaxation"] == "all_reduce"


def test_ways_to_shard_weights():
    asked = ["--sharded", *ASKED, "--bandwidth-gbps", "1"]
    told = json.loads(run(*asked, "--json", "--memory-gb", "0.2"))
    assert told["choice"]["relaxation"] == "fsdp"
    assert told["inputs"]["sharded"] is True
    refused = CliRunner().invoke(app, ["plan", *asked, "--bucket-mb", "4"])
    assert refused.exit_code == 2
    assert "--sharded has no --bucket-mb" in refused.output

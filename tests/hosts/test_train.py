"""`relaxjax train` in two processes is what it is in one, and survives a fault."""

import json
import sys

import pytest

from relaxjax import hosts
from tests.hosts.test_rows import ENVIRONMENT

TRAIN = [sys.executable, "-m", "relaxjax", "train", "--relaxation", "all_reduce@ring"]


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path):
    short = ["--steps", "12", "--no-baseline"]
    runs = []
    for processes, workers in ((2, []), (1, ["--workers", "2"])):
        out = tmp_path / str(processes)
        command = [*TRAIN, *short, *workers, "--out", str(out)]
        said = []
        environment = {**ENVIRONMENT, "JAX_NUM_CPU_DEVICES": "1"}
        ended = hosts.launch(
            command,
            processes,
            environment=environment,
            say=lambda *line, said=said: said.append(line),
        )
        assert ended.status == 0, said
        runs.append(json.loads((out / "run.json").read_text()))
    two, one = runs
    assert two["workers"] == one["workers"] == 2
    assert two["spread"] == 0
    assert two["bytes_per_step"] == one["bytes_per_step"]
    for now, then in zip(two["curve"], one["curve"], strict=True):
        assert now[0] == then[0]
        assert abs(now[1] - then[1]) < 1e-5
        assert now[2] == then[2]


@pytest.mark.slow
def test_processes_with_different_options_stop_at_once(tmp_path):
    launcher = (
        "import os, sys\n"
        "rate = ['0.01', '0.02'][int(os.environ['JAX_PROCESS_ID'])]\n"
        f"os.execv(sys.executable, {TRAIN!r} + ['--steps', '12', '--out', "
        f"{str(tmp_path)!r}, '--learning-rate', rate])"
    )
    said = []
    ended = hosts.launch(
        [sys.executable, "-c", launcher],
        2,
        environment=ENVIRONMENT,
        say=lambda *line: said.append(line),
    )
    assert ended.status != 0
    text = "\n".join(line for _, _, line in said)
    assert "processes disagree on the configuration of the transformation" in text

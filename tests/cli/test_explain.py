"""`relaxjax explain` in words and as JSON."""

import json

import jax
import pytest
from typer.testing import CliRunner

from relaxjax import programs, tasks
from relaxjax._core._arrays import shapes_of
from relaxjax.cli import app


def run(*args: str):
    return CliRunner().invoke(app, ["explain", *args])


def test_in_words():
    found = run("local_sgd", "--workers", "4")
    assert found.exit_code == 0
    assert "1. local_sgd over data: models, after the optimizer" in found.stdout
    assert "a period of 8 steps" in found.stdout
    assert "in step 7" in found.stdout


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["all_reduce", "gossip", "power_sgd"])
def test_as_json(name):
    found = json.loads(run(name, "--workers", "4", "--json").stdout)
    assert found["relaxation"] == name
    assert found["relaxations"][0]["name"] == name
    assert found["bytes_per_step"] > 0
    assert found["problems"] == []


@pytest.mark.parametrize(
    "task", ["digits", pytest.param("chars", marks=pytest.mark.long)]
)
def test_nobody_draws_params_of_which_the_shapes_are_asked(task, monkeypatch):
    drawn, explained = tasks.TASKS[task](0).params, programs.explain

    def watched(tx, params, mesh, **how):
        leaves = jax.tree.leaves(params)
        assert all(isinstance(x, jax.ShapeDtypeStruct) for x in leaves)
        assert shapes_of(params) == shapes_of(drawn)
        return explained(tx, params, mesh, **how)

    monkeypatch.setattr(programs, "explain", watched)
    found = run("all_reduce", "--task", task)
    assert (found.exit_code, found.exception) == (0, None)


def test_an_unknown_name():
    found = run("nonsense")
    assert found.exit_code == 2
    assert "there is no relaxation 'nonsense'" in found.output


def test_a_schedule_of_periods_is_told_from_its_least_to_its_most():
    found = run("local_sgd", "--workers", "4", "--periods", "table:0=2,100=16")
    assert "2 .. 16 steps from one meeting to the next" in " ".join(
        found.stdout.split()
    )
    found = run("local_sgd", "--periods", "often")
    assert (found.exit_code, "no schedule 'often'" in found.output) == (2, True)


@pytest.mark.parametrize(
    ("name", "option", "levels"),
    [("power_sgd", "ranks", (4, 1)), ("all_reduce", "codes", (8, 4))],
)
def test_levels_that_change_are_told_phase_by_phase(name, option, levels):
    """Each with the bytes of a run at its level."""

    def told(table: str) -> dict:
        found = run(name, f"--{option}", f"table:{table}", "--workers", "4", "--json")
        return json.loads(found.stdout)

    high, low = levels
    phases = told(f"0={high},100={low}")["phases"]
    of_each = [told(f"0={level}")["bytes_per_step"] for level in levels]
    assert phases == {"0": of_each[0], "100": of_each[1]}
    assert of_each[0] > of_each[1]
    refused = run(name, f"--{option}", "accordion:low=1,high=4,every=100")
    assert refused.exit_code == 2
    assert "here give a table, or recorded:PATH" in " ".join(refused.output.split())

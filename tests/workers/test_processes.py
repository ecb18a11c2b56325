"""What a process calls its rows is its rows, in NumPy's arrays or in JAX's."""

import json
from contextlib import nullcontext
from typing import NamedTuple

import jax
import pytest

import relaxjax
from relaxjax.workers import _processes
from tests import helpers
from tests.hosts.launched import require_run
from tests.workers import processes


@pytest.mark.long
def test_every_form_of_rows_trains_as_one_process_does(tmp_path):
    require_run("tests.workers.processes", tmp_path, devices=2)
    results, other = (
        json.loads((tmp_path / f"{i}.json").read_text()) for i in range(2)
    )
    error, *rest = results.pop("alone")
    assert other.pop("alone") == ["", *rest] == ["", 0.0, 12.0]
    assert error.startswith("consensus: process 0 has waited 1 s for all of the")
    none, *rest = results.pop("shapes")
    errors, *others = other.pop("shapes")
    assert (none, *rest) == ([], *others) == ([], 0.0, 16.0)
    for error, kind in zip(errors, ("float32[2]", "int32[1]"), strict=True):
        assert error.startswith("data_parallel: process 1 has waited 1 s for all of")
        assert f"bring batches with batch leaf '' {kind} for each worker too" in error
    assert results["repeated"] == 6
    error, *totals = results["unlike workers"]
    assert totals == [0, 7]
    assert "float32[3] for each worker, process 1 has float32[6] for each" in error
    assert "processes disagree on leaf 'w': process 0 has" in results["unlike"]
    assert other == results
    alone = processes.trained(helpers.mesh_of(4), 0, 1, lambda batch: batch)
    for name in processes.FORMS:
        assert results[name] == alone, name
    assert results["whole"] == [0.5, 2.5, 4.5, 6.5]
    over = results["over model"]
    assert over["means"] == [3.5] * 5
    for name in ("unlike", "unlike in jnp", "unlike later"):
        error = "processes 0 and 1 give unlike rows as batch leaf '' of worker 0"
        assert error in over[name], name
    assert results["keys"] == [0, 2, 10, 12]
    assert results["same rows"] == [1, 1, 0, 0, 0, 0, 0]
    for name in ("numpy", "jnp"):
        error = results[f"three rows of {name}"]
        assert "3 rows on this process, which do not divide among its 2 of" in error
    assert "disagree on batch leaf ''" in results["two kinds"]
    assert results["copies"] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert (
        "'seen' is a jax.Array that lies on this process alone"
        in (results["own array"])
    )
    assert results["restored"] == [1, [0, 0, 0, 0]]
    assert results["gone back"] == [[1, 2], [1, 2], 2, [7, 7, 7, 7]]
    aside = tmp_path / "checkpoints" / "forgotten" / "1"
    assert [x.name for x in aside.iterdir()] == ["2"]


def test_rows_of_one_process_are_a_whole_batch():
    """With one process a `jax.Array` needs rows for all workers, as it always has."""
    mesh = helpers.mesh_of(4)
    rows = jax.numpy.arange(8.0)
    assert processes.means(mesh, rows) == [0.5, 2.5, 4.5, 6.5]
    error = processes.error_of(lambda: processes.means(mesh, rows[:6]))
    assert "6 rows, which do not divide among 4 workers" in error


COUNT, TOKEN = "JAX_NUM_PROCESSES", "RELAXJAX_JOB_TOKEN"


@pytest.mark.parametrize("env", [{}, {COUNT: "2"}, {COUNT: "1", TOKEN: "x"}])
def test_a_process_that_nobody_started_trains_alone(env, monkeypatch):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    tx, mesh = relaxjax.all_reduce("data"), relaxjax.emulate(2)
    relaxjax.init(tx, jax.numpy.ones(2), mesh)


def test_a_process_of_relaxjax_run_that_has_not_joined_is_warned(monkeypatch):
    for name, value in {COUNT: "2", TOKEN: "x"}.items():
        monkeypatch.setenv(name, value)
    tx, params = relaxjax.all_reduce("data"), jax.numpy.ones(2)
    for reduced in (False, True):
        with pytest.warns(UserWarning, match="as one of 2, and it has not joined"):
            relaxjax.init(tx, params, relaxjax.emulate(2), reduced_in_step=reduced)


class Device(NamedTuple):
    process_index: int


@pytest.mark.parametrize(
    ("devices", "within", "why"),
    [
        ([0, 0, 1, 1], [0, 0, 1, 1], None),
        ([0, 0, 1, 1, 2, 2], [1, 1], None),
        (
            [0, 0, 1, 1, 2, 2],
            [0, 1],
            r"processes \[0, 1\] and none of \[2\]: a mesh",
        ),
        ([0, 1, 1], [0, 1], r"of devices \(1 in process 0, 2 in process 1\), which"),
    ],
)
def test_a_mesh_is_of_one_process_or_of_all(devices, within, why, monkeypatch):
    mesh = helpers.mesh_of(2)
    monkeypatch.setattr(jax, "process_count", lambda: len({*devices}))
    monkeypatch.setattr(jax, "devices", lambda: [*map(Device, devices)])
    monkeypatch.setattr(_processes, "process_indices", lambda mesh: tuple({*within}))
    expected = pytest.raises(ValueError, match=why) if why else nullcontext()
    with expected:
        _processes.require_whole_job(mesh, "init")

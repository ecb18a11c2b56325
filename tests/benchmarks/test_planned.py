"""The planner measures, chooses, and tries its choice."""

import json

import jax
import optax
import pytest

from benchmarks.planning import planned as _planned
from relaxjax.plan._ranking import BY_COMPILER
from relaxjax.tasks import TASKS


@pytest.mark.slow
def test_a_plan_is_tried(tmp_path):
    found = _planned.planned(workers=2, batch_size=64, top=1, out=str(tmp_path))
    ran = {row["relaxation"] for row in found["after"]["ranking"]}
    assert "all_reduce" in ran
    assert found["after"]["choice"]["relaxation"] in ran
    assert all(row["measured_ms"] > 0 for row in found["after"]["ranking"])
    times = {row["relaxation"]: row["measured_ms"] for row in found["after"]["ranking"]}
    least = min(times.values())
    jit = 1e3 * found["jit_seconds"]
    assert (found["fastest"] == BY_COMPILER) == (jit < least)
    assert found["fastest"] == BY_COMPILER or times[found["fastest"]] == least
    assert set(found["links"]) == {"link", "psum"}
    assert json.loads((tmp_path / "planned.json").read_text())["compute"] > 0


@pytest.mark.slow
def test_a_step_by_the_compiler_alone_of_a_model_with_embeddings():
    task, mesh = TASKS["chars"](0), jax.make_mesh((2,), ("data",))
    assert _planned._by_compiler(task, mesh, 8, optax.sgd(0.1)) > 0

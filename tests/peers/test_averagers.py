"""In which calls PyTorch's averagers take a mean, and the same in relaxjax."""

import jax.numpy as jnp
import optax
import pytest

import relaxjax
from relaxjax import periods

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")
averagers = pytest.importorskip(
    "torch.distributed.algorithms.model_averaging.averagers"
)
hierarchical = pytest.importorskip(
    "torch.distributed.algorithms.model_averaging.hierarchical_model_averager"
)
CALLS, PERIOD, WARM_UP = 24, 4, 10


@pytest.fixture
def theirs(monkeypatch):
    """The calls, from 1, in which the averager of a period means models."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29655")
    dist.init_process_group("gloo", rank=0, world_size=1)
    found, now = list[int](), [0]
    name = "average_parameters_or_parameter_groups"
    monkeypatch.setattr(averagers.utils, name, lambda *_: found.append(now[0]))
    averager = averagers.PeriodicModelAverager(period=PERIOD, warmup_steps=WARM_UP)
    for call in range(1, CALLS + 1):
        now[0] = call
        averager.average_parameters([torch.zeros(1)])
    dist.destroy_process_group()
    return found


def test_the_first_mean_comes_at_once_after_the_warm_up(theirs):
    assert theirs == [11, 15, 19, 23]
    ours = periods.meetings(periods.post_local(WARM_UP + 1, PERIOD), CALLS)
    assert [step for step in ours if step > WARM_UP] == theirs


def test_the_largest_period_comes_first():
    averager = object.__new__(hierarchical.HierarchicalModelAverager)
    averager._periods = [2, 4]
    averager.period_process_group_dict = {2: "near", 4: "far"}
    found = []
    for averager.step in range(8):
        found.append(averager._find_process_group())
    assert found == ["far", None, "near", None] * 2
    tx = relaxjax.hierarchical_local_sgd({2: "b", 4: ("a", "b")}, offset=3)
    chain, x = optax.chain(optax.sgd(0.1), tx), jnp.zeros(64)
    mesh = relaxjax.emulate({"a": 2, "b": 4})
    sent = [relaxjax.wire_bytes(chain, x, mesh, start=t) for t in range(8)]
    near, far = sent[2], sent[0]
    assert 0 < near < far
    assert sent == [far, 0, near, 0] * 2

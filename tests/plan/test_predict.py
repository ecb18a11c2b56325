"""A step by hand: what codes cost, and what waits for them."""

import jax.numpy as jnp
import pytest

from relaxjax import plan
from relaxjax.plan._messages import PlannedMessage
from relaxjax.plan._predict import exchange_seconds
from relaxjax.plan._traffic import Traffic
from relaxjax.schedule import Link

MODEL = plan.Model(params={"w": jnp.zeros((4, 4))}, compute=3.0)  # 1 s of it forward


def network(*, overlap: bool = True) -> plan.Network:
    link = Link(latency=0.0, bandwidth=1.0)
    return plan.Network(workers=2, link=link, codec={"": 1.0}, overlap=overlap)


def message(ready: float | None, sending: float, coding: float) -> PlannedMessage:
    """A message of these seconds, at one byte a second."""
    return PlannedMessage(ready, Traffic(0.0, line=sending, hops=1, coded=coding))


@pytest.mark.parametrize(
    ("messages", "seconds"),
    [
        # forward 1, backward 1, code 2, send 4, beside the backward pass's last second
        ([message(0.5, 4.0, 2.0)], 8.0),
        # forward 1, backward 1, code 2, backward 1; all is sent by then
        ([message(0.5, 0.5, 2.0)], 5.0),
        # forward 1, backward 2, code and send 3
        ([message(1.0, 2.0, 1.0)], 6.0),
        # the first is sent while the second's half of the backward pass runs
        ([message(0.5, 1.0, 0.0), message(1.0, 2.0, 1.0)], 6.0),
        # of the step before: coded first, hidden behind the rest
        ([message(None, 2.0, 1.0)], 4.0),
    ],
)
def test_a_step_by_hand(messages, seconds):
    assert exchange_seconds(messages, MODEL, network()) == pytest.approx(seconds)


def test_without_overlap_everything_follows_the_backward_pass():
    messages = [message(0.5, 4.0, 2.0), message(1.0, 1.0, 1.0)]
    apart = network(overlap=False)
    assert exchange_seconds(messages, MODEL, apart) == pytest.approx(3 + 6 + 2)

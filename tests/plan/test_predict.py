"""A step by hand: what codes cost, and what waits for them."""

from dataclasses import replace

import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxjax import plan, topology
from relaxjax.plan._candidate import Candidate
from relaxjax.plan._messages import PlannedMessage
from relaxjax.plan._model import FORWARD
from relaxjax.plan._predict import _step, exchange_seconds, predict
from relaxjax.plan._traffic import PayloadSize, Traffic, neighbors
from relaxjax.schedule import Cluster, Cost, Graph, Link, Policy, simulate

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
        # the same before one of this step, which the link takes when it is free: at 4
        ([message(0.5, 1.0, 0.0), message(None, 2.0, 1.0)], 5.0),
    ],
)
@pytest.mark.parametrize("scale", [1.0, 1e-9])
def test_a_step_by_hand(messages, seconds, scale):
    link = Link(latency=0.0, bandwidth=1 / scale)
    scaled = replace(network(), link=link, codec={"": 1 / scale})
    model = replace(MODEL, compute=3 * scale)
    found = exchange_seconds(messages, model, scaled)
    assert found == pytest.approx(seconds * scale)


def test_without_overlap_everything_follows_the_backward_pass():
    messages = [message(0.5, 4.0, 2.0), message(1.0, 1.0, 1.0)]
    apart = network(overlap=False)
    assert exchange_seconds(messages, MODEL, apart) == pytest.approx(3 + 6 + 2)


def test_messages_leave_as_they_become_ready():
    """Forward until 1, backward until 3; the second in the list is ready first."""
    messages = [message(0.5, 1.0, 0.0), message(0.25, 1.0, 0.0)]
    # from 1.5 until 2.5, then the other until 3.5
    assert exchange_seconds(messages, MODEL, network()) == pytest.approx(3.5)
    messages = [message(0.5, 4.0, 1.0), message(0.25, 1.0, 0.0)]
    # from 1.5 until 2.5; the other's code from 2 until 3, then 4 s
    assert exchange_seconds(messages, MODEL, network()) == pytest.approx(7)


def simulated(
    messages: list[PlannedMessage],
    seconds: list[float],
    coding: list[float],
    compute: float,
) -> float:
    """The step by the simulator, with an operation for each part and each code."""
    ends = sorted({m.ready for m in messages if m.ready} | {1.0})
    parts, done = {"forward": compute * FORWARD}, 0.0
    for end in (None, *ends):
        if end is not None:
            parts[f"backward {end}"] = compute * (1 - FORWARD) * (end - done)
            done = end
        parts |= {
            f"code {i}": coding[i]
            for i, m in enumerate(messages)
            if m.ready == end and coding[i]
        }
    before = [[], *([name] for name in parts)]
    ops = dict(zip(parts, zip(parts.values(), before, strict=False), strict=True))
    sends = {}
    for i, message in enumerate(messages):
        last = f"code {i}" if coding[i] else f"backward {message.ready}"
        need = [last] if last in parts else []
        sends[str(i)] = (seconds[i] - coding[i], need)
    policy = Policy(
        "plan",
        collective=lambda nbytes: Cost(1, nbytes),
        buckets=tuple((name,) for name in sends),
    )
    link = Link(latency=0.0, bandwidth=1e12)  # seconds are bytes on it
    return simulate(Graph({}, ops, sends), policy, Cluster(link=link)).seconds


one = st.tuples(
    st.sampled_from([None, 0.25, 0.5, 0.75, 1.0]), st.integers(1, 9), st.integers(0, 3)
)


@settings(deadline=None, max_examples=60)
@given(st.lists(one, min_size=1, max_size=7), st.integers(0, 6))
def test_the_closed_form_is_the_simulator(drawn, compute):
    messages = [message(ready, 0.0, 0.0) for ready, _, _ in drawn]
    coding = [float(code) for _, _, code in drawn]
    seconds = [
        sending + code for (_, sending, _), code in zip(drawn, coding, strict=True)
    ]
    found = _step(messages, seconds, coding, float(compute))
    assert found == pytest.approx(simulated(messages, seconds, coding, float(compute)))


def candidate(every: int = 1, keeps: float = 0.0) -> Candidate:
    """Two messages, of which only the first is native; each is asked for by bytes."""

    def messages(model, network, nbytes):
        assert isinstance(model, plan.Model)
        assert isinstance(network, plan.Network)
        first = message(1.0, 3.0, 0.0)._replace(native=True)
        first = first._replace(traffic=first.traffic._replace(sent=20.0))
        return [first, PlannedMessage(1.0, Traffic(float(nbytes), line=1.0, coded=2.0))]

    return Candidate(
        relaxation="x", messages=messages, tx="", why="", every=every, keeps=keeps
    )


def test_a_prediction_by_hand():
    """Forward and backward 3 s, a send of 3 s, a code of 2 s and its send of 1 s."""
    found = predict(candidate(keeps=1.5), MODEL, network(), 100)
    assert found.seconds == pytest.approx(3 + 3 + 2 + 1)
    assert found.messages == pytest.approx(3 + 1 + 2)
    assert found.nbytes == 120
    assert found.memory == 4 * 16 * (4 + 1.5)
    assert found.bucket_bytes == 100


def test_every_fourth_step_exchanges_for_four():
    once, rarely = (predict(candidate(every=n), MODEL, network(), 100) for n in (1, 4))
    assert rarely.seconds == pytest.approx((3 * 3.0 + once.seconds) / 4)
    assert rarely.messages == pytest.approx(once.messages / 4)
    assert rarely.nbytes == pytest.approx(once.nbytes / 4)
    assert rarely.memory == once.memory


def test_one_worker_sends_nothing():
    alone = plan.Network(workers=1, link=Link(latency=0.0, bandwidth=1.0))
    found = predict(candidate(every=3), MODEL, alone, 100)
    assert (found.seconds, found.messages, found.nbytes) == (3.0, 0.0, 0.0)


def test_the_backends_own_all_reduce_has_its_own_link():
    fast = plan.Network(
        workers=2,
        link=Link(latency=0.0, bandwidth=1.0),
        psum=Link(latency=0.0, bandwidth=3.0),
        codec={"": 1.0},
    )
    assert predict(candidate(), MODEL, fast, 100).messages == pytest.approx(1 + 1 + 2)


@pytest.mark.parametrize("per_host", [1, 2, 4])
def test_coded_gossip_leaves_a_host_where_the_ring_does(per_host):
    """Counted over the messages of the graph."""
    workers, payload = 8, PayloadSize(lambda d: d, coded=True)
    leaving = sum(
        weight.pairs.count((i, j))
        for weight in topology.ring(workers).messages(0)
        for i in range(per_host)
        for j in range(per_host, workers)
    )
    there = plan.Network(workers=workers, per_host=per_host, link=Link(0.0, 1.0))
    found = neighbors(10, there, payload, degree=2)
    assert found.line == 10 * leaving
    assert found.sent == 20

"""Pulls and pushes in the program for eight H100s: their order, and what hides them.

A step of a six-layer perceptron, 4096 rows of 1024 for each of eight devices.
"""

import itertools

import pytest

from benchmarks.programs.compiled_orders import MIB, orders_of
from benchmarks.programs.overlap_models import MODELS, perceptron
from benchmarks.programs.pulls import pulled_text
from relaxjax.ps._compiled_order import order_in
from relaxjax.schedule import Device, Link, analytic, replay

DEVICE = Device(flops=4e14, bandwidth=3.35e12)
LINK = Link(latency=1e-5, bandwidth=4.5e11)
FORWARD = [f"layer{i}" for i in range(6)]
ORDERS = {
    "forward": FORWARD,
    "reversed": FORWARD[::-1],
    "mixed": [FORWARD[i] for i in (2, 0, 5, 1, 4, 3)],
}


@pytest.fixture(scope="module")
def texts(mesh):
    return {
        name: pulled_text(perceptron(), mesh, order=order, bucket_bytes=1)
        for name, order in ORDERS.items()
    }


def seen(text: str):
    return replay(text, device=DEVICE, link=LINK)


@pytest.mark.parametrize("name", ORDERS)
def test_transfers_start_in_the_order_asked_for(texts, name):
    found = order_in(texts[name])
    assert list(found.pulls) == ORDERS[name]
    assert list(found.pushes) == ORDERS[name][::-1]


def test_pulls_hide_behind_earlier_layers_in_forward_order_alone(texts):
    """All but the first pull can: five of six layers run under one."""
    forward, wrong = seen(texts["forward"]), seen(texts["reversed"])
    assert forward.forward_share >= 0.45
    assert wrong.forward_share <= 0.05
    assert forward.exposed < wrong.exposed


def test_pushes_hide_behind_the_rest_of_the_backward_pass(texts):
    assert seen(texts["forward"]).share >= 0.4


@pytest.mark.parametrize("name", ORDERS)
def test_each_transfer_is_one_message(texts, name):
    run = seen(texts[name])
    assert len(run.transfers) == 12
    share = 4 * MIB * 7 // 8
    assert {t.nbytes for t in run.transfers} == {share}
    for earlier, later in itertools.pairwise(run.transfers):
        assert earlier.end <= later.start  # one after the other


@pytest.mark.slow
def test_the_best_order_of_a_transformer_hides_most(mesh):
    training = MODELS["12-layer transformer"]()
    order = orders_of(training, analytic(DEVICE), LINK, 0)["tac"]
    text = pulled_text(training, mesh, order=order, bucket_bytes=2 * MIB)
    assert seen(text).forward_share >= 0.6

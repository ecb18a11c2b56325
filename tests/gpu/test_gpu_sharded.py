"""Sharded layers in the program for eight H100s: what runs beside their transfers."""

import re

import jax
import pytest

from benchmarks.programs.sharded import WIDTH, text_of
from relaxjax.schedule import Device, Link, replay
from tests.gpu.programs import LOOPS

LAYERS = 6
DEVICE = Device(flops=4e14, bandwidth=3.35e12)
LINK = Link(latency=1e-5, bandwidth=4.5e11)
GATHER = re.compile(r"all-gather(-start)?\(")
NAME = re.compile(r"%[\w.\-]+")
NAMES = {
    "ahead": "fsdp 8 and 4 bits, a layer ahead",
    "at once": "fsdp 8 and 4 bits, a turn for itself",
    "plain": "fsdp, a layer ahead",
    "stock": "stock",
    "flags": "stock, XLA's flags",
}


NEW = jax.__version_info__ >= (0, 11)


@pytest.fixture(scope="module")
def runs(mesh):
    options = LOOPS if NEW else None
    texts = {short: text_of(x, mesh, LAYERS, options) for short, x in NAMES.items()}
    return {
        short: replay(text, device=DEVICE, link=LINK) for short, text in texts.items()
    }


def test_a_layer_ahead_hides_what_a_turn_of_its_own_exposes(runs):
    """Seconds that computation waits; a turn's own transfers hide under nothing."""
    at_once = runs["at once"]
    assert at_once.share == at_once.forward_share == 0
    assert runs["ahead"].exposed <= 0.25 * at_once.exposed
    assert runs["ahead"].share >= (0.45 if NEW else 0.6)
    assert runs["plain"].share >= 0.6
    assert runs["plain"].forward_share >= 0.8


def test_less_is_held_up_than_by_the_compiler_s_own_gathers(runs):
    stock = min(runs["stock"].exposed, runs["flags"].exposed)
    assert runs["ahead"].exposed <= 0.5 * stock
    assert runs["plain"].exposed <= 0.5 * stock


def test_scale_and_codes_are_one_message(runs):
    """Two gathers and a scatter for each layer; the compiler joins two of the first."""
    c = WIDTH * WIDTH // 8
    message = 7 * (c + 4 * c // 2048)
    assert len(runs["ahead"].transfers) == 3 * LAYERS - 1
    sent = [t.nbytes for t in runs["ahead"].transfers if "gather" in t.name]
    assert sum(sent) == 2 * LAYERS * message
    assert {nbytes % message for nbytes in sent} == {0}


def test_the_next_layer_s_codes_leave_before_this_one_s_product(mesh):
    """In the loop of the forward pass, which scatters nothing."""
    text = text_of(NAMES["ahead"], mesh, LAYERS)
    (forward,) = (
        x.splitlines()
        for x in text.split("\n\n")
        if GATHER.search(x) and "all-to-all" not in x and "ENTRY" not in x
    )
    needs = {x[0]: x[1:] for line in forward if (x := NAME.findall(line))}
    places = list(needs)
    gather = next(NAME.findall(line)[0] for line in forward if GATHER.search(line))
    product = next(name for name in places if name.startswith("%gemm_fusion"))
    assert places.index(gather) < places.index(product)
    found, todo = set(), [product]
    while todo:
        found.add(name := todo.pop())
        todo += [x for x in needs.get(name, ()) if x not in found]
    assert gather not in found  # it is of another layer

"""Legs of a split model in the program for eight H100s: bytes and waits."""

import pytest

from benchmarks.programs.split_model import CODES, stated, text_of
from relaxjax.schedule import Device, Link, replay

DEVICE = Device(flops=4e14, bandwidth=3.35e12)
LINK = Link(latency=1e-5, bandwidth=5e10)
BOTH = "8 bits both ways"
LAYERS = ("tensor", "expert")


@pytest.fixture(scope="module")
def runs(mesh):
    def run(layer, name):
        return replay(text_of(layer, CODES[name], mesh), device=DEVICE, link=LINK)

    return {(x, name): run(x, name) for x in LAYERS for name in ("as it is", BOTH)}


@pytest.mark.parametrize("name", ["as it is", BOTH])
@pytest.mark.parametrize("layer", LAYERS)
def test_compiled_bytes_are_the_stated_ones(runs, layer, name):
    """Sixteen bits stay sixteen on a GPU's wire; scales are in the same messages."""
    transfers = runs[layer, name].transfers
    assert sum(t.nbytes for t in transfers) == stated(layer, CODES[name]).total
    shots = 2 if (layer, name) == ("tensor", BOTH) else 1  # parts, and then their sums
    assert len(transfers) == 4 * shots


@pytest.mark.parametrize("layer", LAYERS)
def test_codes_hold_up_less_on_a_link_between_hosts(runs, layer):
    coded, plain = runs[layer, BOTH], runs[layer, "as it is"]
    assert coded.exposed <= 0.6 * plain.exposed
    assert coded.total < plain.total

"""Buckets travel under the backward pass, in the GPU program and with stated rates.

A step of a six-layer perceptron, 4096 rows of 1024 for each of eight devices: 43 us of
backward products and 26 us of transfer in each layer.
"""

from typing import Any

import jax
import pytest

import relaxjax
from benchmarks.programs.overlap import LATE_BYTES, programs
from benchmarks.programs.overlap_models import MODELS, microbatched, perceptron, scanned
from benchmarks.programs.overlap_programs import (
    delay_text,
    gossip_text,
    inside_text,
    pmean_text,
    relaxjax_text,
)
from relaxjax import all_reduce, compression, skip_nonfinite
from relaxjax.schedule import Device, Link, replay
from tests.gpu.programs import LOOPS, collectives, train_text

DEVICE = Device(flops=4e14, bandwidth=3.35e12)
LINK = Link(latency=1e-5, bandwidth=4.5e11)
LAYER = 4 * 2**20
UNIT = LINK.seconds(2 * 7 / 8 * LAYER)
FORWARD = [f"layer{i}" for i in range(6)]


def seen(text: str):
    return replay(text, device=DEVICE, link=LINK)


@pytest.fixture(scope="module")
def ours(mesh):
    """The defaults, but for buckets of a layer each."""
    return seen(relaxjax_text(perceptron(), mesh, bucket_bytes=LAYER))


def test_stock_overlaps_nothing(mesh):
    stock = seen(pmean_text(perceptron(), mesh))
    assert len(stock.transfers) == 1
    assert stock.share == 0.0
    assert stock.exposed == pytest.approx(LINK.seconds(6 * 2 * 7 / 8 * LAYER), rel=1e-3)


def test_buckets_overlap(ours):
    assert len(ours.transfers) == 6
    assert ours.exposed <= 1.3 * UNIT
    assert ours.share >= 0.75


def test_combine_then_adapt_travels_under_forward_and_backward_products(mesh):
    """Nothing of it needs the gradient; the models after the step do."""
    early, late = (
        seen(gossip_text(perceptron(), mesh, method, bucket_bytes=2 * LAYER))
        for method in (relaxjax.combine_then_adapt, relaxjax.gossip)
    )
    assert len(early.transfers) == len(late.transfers) == 2 * 3  # two neighbors
    assert early.share_of_all >= 0.6 > late.share_of_all
    assert early.exposed <= LINK.seconds(2 * LAYER) * 1.01


def test_what_waited_travels_under_all_products(mesh, ours):
    """The gradients of the step before: nothing of this one is needed."""
    late = seen(delay_text(perceptron(), mesh, bucket_bytes=LAYER))
    assert len(late.transfers) == len(ours.transfers)
    assert late.share_of_all >= 0.8 > ours.share_of_all
    assert late.exposed <= ours.exposed


@pytest.mark.slow
def test_what_waited_travels_under_a_transformer_in_messages(mesh):
    """XLA begins an all-reduce no earlier than it has to, but a message early."""
    knobs = {"algorithm": "halving_doubling", "bucket_bytes": LATE_BYTES}
    late = seen(delay_text(MODELS["12-layer transformer"](), mesh, **knobs))
    assert late.share_of_all >= 0.8
    assert late.exposed <= LINK.seconds(LATE_BYTES)


def test_an_order_that_is_given_is_kept(mesh):
    true, wrong = (
        seen(relaxjax_text(perceptron(), mesh, bucket_bytes=LAYER, order=order))
        for order in (FORWARD[::-1], FORWARD)
    )
    assert len(true.transfers) == len(wrong.transfers) == 6
    assert true.exposed <= 1.3 * UNIT
    # The first layer's gradient first: all errors are propagated before it can leave.
    assert wrong.share < 0.5 < true.share


def test_codes_without_an_order_wait_for_no_other_bucket(mesh):
    """Two messages a bucket: the second of one travels beside the first of the next."""
    eight = compression.error_feedback(compression.quantize(8))
    knobs = {"compressor": eight, "bucket_bytes": 2 * LAYER}
    free, chained = (
        seen(relaxjax_text(perceptron(), mesh, order=order, **knobs))
        for order in (None, FORWARD[::-1])
    )
    assert len(chained.transfers) == 2 * 3 > len(free.transfers)
    assert free.exposed <= 0.5 * chained.exposed
    assert free.total < chained.total


def test_psum_sends_what_is_ready_in_groups_of_whole_leaves(mesh):
    text = relaxjax_text(perceptron(), mesh, bucket_bytes=2 * LAYER)
    assert [shape for _, shape in collectives(text)] == [f"f32[{2 * 1024**2}]"] * 3


def test_skipping_nonfinite_steps_keeps_the_overlap(mesh, ours):
    reducer = all_reduce("data", bucket_bytes=LAYER)
    alone = seen(train_text(reducer, mesh, rows=4096))
    both = seen(train_text(skip_nonfinite(reducer, "data"), mesh, rows=4096))
    assert alone.exposed == pytest.approx(ours.exposed)
    assert both.share >= 0.75
    # The agreement is one integer more, after the last bucket.
    agreement = LINK.seconds(2 * 7 * 4)
    assert both.exposed <= 1.3 * UNIT + agreement


def test_the_table_names_every_program(mesh):
    found = programs(perceptron(), mesh, LAYER)
    assert len(found) == 16
    assert found["relaxjax psum, true order"][1](LINK) == pytest.approx(UNIT)
    ring = found["relaxjax ring, true order"][1](LINK)
    assert ring == pytest.approx(UNIT + 13 * LINK.latency)


@pytest.fixture(scope="module")
def loop():
    """A decoder of four layers in a scan, and its unit: a layer in one bucket."""
    training = scanned(layers=4, vocabulary=2048)
    layer = sum(4 * leaf.size for leaf in jax.tree.leaves(training.params["layers"]))
    return training, LINK.seconds(2 * 7 / 8 * layer / 4)


@pytest.mark.long
def test_a_scan_over_layers_hides_all_but_the_last(mesh, loop):
    training, unit = loop
    knobs: Any = {"bucket_bytes": 2**30}
    if jax.__version_info__ >= (0, 11):
        knobs["options"] = LOOPS
    inside, late = (
        seen(inside_text(training, mesh, way, **knobs))
        for way in ("reduce_in_backward", "scan_layers")
    )
    after = seen(relaxjax_text(training, mesh, bucket_bytes=2**30))
    assert late.exposed <= 2 * unit < min(after.exposed, inside.exposed)
    # In each of the four turns, the gradient of the turn before and nothing else.
    turns = sorted(late.transfers, key=lambda t: t.nbytes)[-4:]
    layer = round((unit - LINK.latency) * LINK.bandwidth)
    assert [t.nbytes for t in turns] == [pytest.approx(layer)] * 4


@pytest.mark.long
def test_microbatches_overlap_in_the_last(mesh):
    training = microbatched(layers=2, width=256, vocabulary=1024, microbatches=3)
    knobs = {"bucket_bytes": 2**20}
    after = seen(relaxjax_text(training, mesh, **knobs))
    inside = seen(inside_text(training, mesh, "reduce_in_backward", **knobs))
    assert after.share == 0.0
    assert inside.share > 0.1
    assert inside.exposed < after.exposed

"""The sizes of a bucket that are not tried would not have been better."""

import jax
import jax.numpy as jnp
import pytest

from relaxjax import plan
from relaxjax._names import RELAXATIONS
from relaxjax.plan._candidates import candidates
from relaxjax.plan._model import Model
from relaxjax.plan._network import Network
from relaxjax.plan._predict import predict
from relaxjax.plan._rank import best_bucket
from relaxjax.plan._traced import _least, _of_leaf
from relaxjax.schedule import Link

MIB = 2**20
SIZES = (MIB, 8 * MIB, 64 * MIB, 512 * MIB)
FAST = Network(workers=8, link=Link(latency=1e-6, bandwidth=5e9))
FAR = Network(workers=8, link=Link(latency=1.0, bandwidth=1e9))
LARGE = Model(params={f"w{i}": jnp.zeros((2048, 2048)) for i in range(2)}, compute=0.05)


def test_small_buckets_hide_more_on_a_fast_link():
    model = plan.Model.of_size(25_000_000, compute=0.05)
    (plain,) = (x for x in candidates(FAST, ["all_reduce"]) if x.label == "all_reduce")
    assert best_bucket(plain, model, FAST, None).bucket_bytes == MIB
    assert predict(plain, model, FAST, MIB).seconds < (
        0.99 * min(predict(plain, model, FAST, size).seconds for size in SIZES[1:])
    )


@pytest.mark.parametrize("network", [FAST, FAR], ids=["fast", "far"])
def test_a_search_that_leaves_sizes_out_finds_the_best_all_the_same(network):
    names = ["power_sgd", "acp_sgd", "local_sgd", "streaming_diloco", "sparse_loco"]
    searched = [x for x in candidates(network, names) if len(x.buckets) < 2]
    assert {x.buckets for x in searched} == {(), ("larger",)}
    for candidate in searched:
        found = best_bucket(candidate, LARGE, network, None).seconds
        every = [predict(candidate, LARGE, network, size).seconds for size in SIZES]
        assert found <= min(every) * 1.01, candidate.label


@pytest.mark.parametrize("size", [300_000, 2_000_000, 2_200_000])
def test_a_model_smaller_than_a_bucket_is_cut_too(size):
    """Else it ends the backward pass as one message, and codes are chosen instead."""
    network = Network(workers=8, per_host=2, link=Link(latency=1e-4, bandwidth=1e9))
    model = plan.Model.of_size(size, compute=0.1)
    for row in plan.rank(model, network).rows:
        one = predict(row.candidate, model, network, MIB).seconds
        assert row.seconds <= one * 1.011, row.label
    assert plan.rank(model, network).choice.label == "all_reduce"


def test_a_long_way_is_worth_one_bucket_for_what_is_traced():
    """Two leaves of 16 MiB in a bucket wait for each other no more."""
    (row,) = candidates(FAR, ["sparse_loco"])
    assert best_bucket(row, LARGE, FAR, None).bucket_bytes > 8 * MIB


@pytest.mark.parametrize("size", [MIB // 2, MIB, 3 * MIB // 2, 2 * MIB, 9 * MIB])
@pytest.mark.parametrize("name", ["sparse_loco", "bounded_staleness"])
def test_a_bucket_that_holds_all_leaves_stands_for_larger_ones(name, size):
    row, leaf = RELAXATIONS[name], jax.ShapeDtypeStruct((512, 512), jnp.float32)
    assert _least(row, leaf, size) <= size or "bucket_bytes" not in row.options
    least = _of_leaf(row, 4, leaf, _least(row, leaf, size))
    assert least == _of_leaf(row, 4, leaf, size)

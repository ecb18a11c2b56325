"""What sends bytes for nothing, or loses most of them: `init` and `explain` say so."""

import warnings

import optax
import pytest

import relaxjax
from relaxjax import all_reduce, compression, diloco, gossip, local_sgd, power_sgd
from tests import helpers

MESH = relaxjax.emulate(4)
TWO = relaxjax.emulate({"outer": 2, "inner": 2})
SGD = optax.sgd(0.1)
GOSSIP = gossip("data", relaxjax.topology.ring(4))
LOW = power_sgd("data", rank=1, min_compression=0)
COMPRESSORS = {
    "top_k": compression.top_k(0.1),
    "threshold": compression.threshold(0.1, 8),
}


def leaf(first):
    """One leaf reduced by `first`, the others left as they are."""
    params = helpers.problem()
    labels = {name: "first" if i == 0 else "rest" for i, name in enumerate(params)}
    return optax.partition({"first": first, "rest": optax.identity()}, labels)


def said_of(tx, mesh=MESH):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        relaxjax.init(tx, helpers.problem(), mesh)
    words = [str(w.message) for w in caught]
    assert relaxjax.explain(tx, helpers.problem(), mesh).problems == words
    return words


@pytest.mark.parametrize(
    ("reducer", "at", "tx"),
    [
        (
            "all_reduce",
            "diloco",
            optax.chain(all_reduce("data"), diloco(SGD, "data", 4)),
        ),
        (
            "all_reduce",
            "diloco",
            diloco(optax.chain(all_reduce("data"), SGD), "data", 4),
        ),
        (
            "all_reduce",
            "local_sgd",
            optax.chain(all_reduce("data"), SGD, local_sgd("data", 4)),
        ),
        (
            "power_sgd",
            "gossip",
            optax.chain(LOW, SGD, gossip("data", relaxjax.topology.ring(4))),
        ),
        (
            "all_reduce",
            "local_sgd",
            optax.chain(
                relaxjax.delay(1), all_reduce("data"), SGD, local_sgd("data", 4)
            ),
        ),
    ],
)
def test_models_that_are_equal_already_need_no_meeting(reducer, at, tx):
    (words,) = said_of(tx)
    assert words.startswith(f"init: {reducer} makes the gradients of all workers equal")
    assert f"the models that {at} brings together" in words


@pytest.mark.parametrize(
    ("tx", "mesh"),
    [
        (optax.chain(SGD, local_sgd("data", 4)), MESH),
        (diloco(SGD, "data", 4, reducer=all_reduce("data")), MESH),
        (optax.chain(leaf(all_reduce("data")), SGD, local_sgd("data", 4)), MESH),
        (diloco(optax.chain(leaf(all_reduce("data")), SGD), "data", 4), MESH),
        (optax.chain(all_reduce("inner"), SGD, local_sgd("outer", 4)), TWO),
        (diloco(optax.chain(all_reduce("inner"), SGD), "outer", 4), TWO),
        (relaxjax.post_local_sgd(SGD, "data", 2, 3), MESH),
    ],
)
def test_models_that_part_do_need_it(tx, mesh):
    assert said_of(tx, mesh) == []


@pytest.mark.parametrize("name", COMPRESSORS)
def test_numbers_that_are_left_out_for_good_are_told_of(name):
    tx = optax.chain(all_reduce("data", compressor=COMPRESSORS[name]), SGD)
    (words,) = said_of(tx)
    assert words.startswith("init: all_reduce sends some of the numbers alone, by")
    assert name in words
    assert "compression.error_feedback(...)" in words


@pytest.mark.parametrize(
    "compressor",
    [
        compression.error_feedback(compression.top_k(0.1)),
        compression.random_k(0.1),
        compression.random_k(0.1)._replace(name="unbiased", algorithm="one_shot"),
        compression.sign(),
    ],
    ids=lambda x: x.name,
)
def test_other_codes_are_not(compressor):
    assert said_of(optax.chain(all_reduce("data", compressor=compressor), SGD)) == []

"""Transformations that go to another process, as launchers of functions send them."""

import pickle

import cloudpickle
import pytest

import relaxjax
from tests import helpers
from tests.checkpoint import training


@pytest.mark.few(4)
@pytest.mark.parametrize("name", training.NAMES)
def test_it_trains_the_same(name):
    mesh, batches = relaxjax.emulate(4), helpers.batches(training.STEPS, 8)
    tx = training.relaxed(name, 4)
    sent = pickle.loads(cloudpickle.dumps(tx))
    found, expected = (
        training.trained(x, training.fresh(x, mesh), mesh, batches) for x in (sent, tx)
    )
    assert training.bits(found) == training.bits(expected)


def test_what_it_is_made_of_goes_too():
    sent = relaxjax.compression.error_feedback(relaxjax.compression.quantize(4))
    topology = relaxjax.topology.ring(4)
    for x in (sent, topology, relaxjax.merges.median(), relaxjax.emulate(4)):
        assert type(pickle.loads(cloudpickle.dumps(x))) is type(x)

"""A NaN at each step and each worker, under one relaxation of each kind."""

from typing import Any

import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import all_reduce, compression, emulate, skip_nonfinite, topology
from tests import helpers
from tests.helpers import assert_equal

N, STEPS = 4, 4
ADAM = optax.adam(1e-2)
EF_SIGN = compression.error_feedback(compression.sign())
# First the relaxations whose workers hold equal models, then the others.
ALIKE: dict[str, Any] = {
    "compressed": optax.chain(all_reduce("data", compressor=EF_SIGN), ADAM),
    "power_sgd": optax.chain(
        relaxjax.power_sgd("data", rank=1, min_compression=0), ADAM
    ),
    "delay": optax.chain(relaxjax.delay(1), all_reduce("data"), ADAM),
    "accumulate": relaxjax.accumulate(optax.chain(all_reduce("data"), ADAM), 2),
    "participation": relaxjax.participation(
        optax.chain(all_reduce("data"), ADAM), "data", [[1, 1, 1, 1]]
    ),
}
APART: dict[str, Any] = {
    "diloco": relaxjax.diloco(ADAM, "data", 2, compressor=EF_SIGN),
    "gossip": optax.chain(
        ADAM, relaxjax.gossip("data", topology.one_peer_exponential(N))
    ),
    "push_sum": optax.chain(
        ADAM, relaxjax.lossy_push_sum("data", topology.ring(N), 0.3)
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", [*ALIKE, *APART])
def test_a_step_with_a_nan_leaves_no_trace_anywhere(name):
    tx = skip_nonfinite((ALIKE | APART)[name], "data")
    mesh = emulate(N)
    step = relaxjax.data_parallel(helpers.train_step_of(tx), mesh)
    start = relaxjax.init(tx, helpers.problem(), mesh)
    data = helpers.batches(STEPS, rows=2 * N)

    def trained(batches: list[Any]) -> tuple[Any, Any]:
        state = start
        for batch in batches:
            *state, _ = step(*state, batch)
        return state[0], state[1]

    for bad_step in range(STEPS):
        rest = [batch for i, batch in enumerate(data) if i != bad_step]
        expected, expected_state = trained(rest)
        for worker in range(N):
            x = data[bad_step]["x"].copy()
            x[2 * worker + 1, 3] = np.nan
            bad = {**data[bad_step], "x": x}
            found, state = trained([*rest[:bad_step], bad, *rest[bad_step:]])
            assert_equal(found, expected)
            assert_equal(state.inner_state, expected_state.inner_state)
            np.testing.assert_array_equal(state.skipped, [1] * N)
            if name in ALIKE:
                relaxjax.require_replicas(found, "params")

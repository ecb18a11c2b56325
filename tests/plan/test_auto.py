"""The chosen transformation is the one that was ranked; measured times decide."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import plan
from relaxjax.schedule import Link

PARAMS = {"w": jnp.ones((64, 64)), "b": jnp.ones(64)}
SLOW = plan.Network(workers=4, link=Link(1e-4, 1e5))


def step_of(tx, mesh):
    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(lambda p: jnp.sum(p["w"] @ batch[0]))(params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    return relaxjax.data_parallel(train_step, mesh)


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("label", ["all_reduce@ring", "local_sgd+quantize8", "gossip"])
def test_the_row_is_what_is_built(label: str):
    """It trains, and sends the bytes that were predicted."""
    found = plan.rank(plan.Model(params=PARAMS, compute=0.1), SLOW)
    (row,) = [row for row in found.rows if row.label == label]
    tx = plan.transformation(row, "data", optax.sgd(0.1), 4)
    mesh, every = relaxjax.emulate(4), row.candidate.every
    sent = relaxjax.wire_bytes(tx, PARAMS, mesh, steps=int(every))
    assert sent == pytest.approx(row.prediction.nbytes * every, abs=0.5)
    params, state = relaxjax.init(tx, PARAMS, mesh)
    params, state, _ = step_of(tx, mesh)(params, state, np.ones((4, 64), np.float32))
    assert jnp.isfinite(relaxjax.consensus(params)["w"]).all()


def test_auto_takes_what_pays():
    how = {"network": SLOW, "compute": 0.001}
    tx = plan.auto("data", optax.sgd(0.1), PARAMS, **how, quality="unmeasured")
    plain = plan.auto("data", optax.sgd(0.1), PARAMS, **how, quality="exact")
    mesh = relaxjax.emulate(4)
    few, all_ = (relaxjax.wire_bytes(t, PARAMS, mesh, steps=8) for t in (tx, plain))
    assert few < 0.2 * all_


def test_over_hosts():
    network = replace(SLOW, workers=4, per_host=2)
    tx = plan.auto(
        ("host", "device"),
        optax.sgd(0.1),
        PARAMS,
        network=network,
        compute=0.001,
        quality="exact",
    )
    mesh = relaxjax.emulate({"host": 2, "device": 2})
    params, state = relaxjax.init(tx, PARAMS, mesh)
    step = step_of(tx, mesh)
    params, *_ = step(params, state, np.ones((4, 64), np.float32))
    assert relaxjax.spread(params) == 0


def test_what_was_measured_decides():
    found = plan.rank(
        plan.Model(params=PARAMS, compute=0.001), SLOW, quality="unmeasured"
    )
    asked = []

    def seconds_of(row: plan.Row) -> float:
        asked.append(row.label)
        return 0.5 if row.label == "all_reduce" else 1.0 + len(asked)

    sure = plan.verify(found, seconds_of, top=3)
    assert asked == [*[row.label for row in found.rows[:3]], "all_reduce"]
    assert sure.choice.label == "all_reduce"
    assert sure.choice.measured == 0.5
    assert sure.choice.told()["measured_ms"] == 500.0
    with pytest.raises(ValueError, match="top=0"):
        plan.verify(found, seconds_of, top=0)

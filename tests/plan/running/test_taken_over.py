"""A run that goes on with another relaxation: the model and the optimizer's memory."""

from typing import Any

import jax
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, fsdp, plan
from relaxjax.plan.running import _taken_over
from relaxjax.workers import at_mean
from tests import helpers
from tests.helpers import assert_close, assert_equal, mesh_of

N = 4
ADAM = optax.adam(0.02)
SIGN = compression.error_feedback(compression.sign())
TXS = {
    "all_reduce": optax.chain(relaxjax.all_reduce("data"), ADAM),
    "signs": optax.chain(relaxjax.all_reduce("data", compressor=SIGN), ADAM),
    "power_sgd": optax.chain(relaxjax.power_sgd("data", rank=1), ADAM),
    "local_sgd": optax.chain(ADAM, relaxjax.local_sgd("data", 3)),
    "diloco": relaxjax.diloco(ADAM, "data", 3),
}


def trained(tx: Any, mesh: Any, run: Any, start: int, stop: int) -> Any:
    step = relaxjax.data_parallel(helpers.train_step_of(tx), mesh)
    for batch in helpers.batches(12, 2 * N)[start:stop]:
        *run, _ = step(*run, batch)
    return run


def moments(state: Any) -> Any:
    def is_adam(x: Any) -> bool:
        return isinstance(x, optax.ScaleByAdamState)

    found = [x for x in jax.tree.leaves(state, is_leaf=is_adam) if is_adam(x)]
    assert len(found) == 1
    return found[0]


@pytest.mark.long
@pytest.mark.few(8)
@pytest.mark.parametrize("place", [emulate, mesh_of])
@pytest.mark.parametrize("after", TXS)
@pytest.mark.parametrize("before", ["all_reduce", "local_sgd", "diloco"])
def test_the_model_and_the_moments_stay(before, after, place):
    mesh = place(N)
    run = relaxjax.init(TXS[before], helpers.problem(), mesh)
    run = trained(TXS[before], mesh, run, 0, 4)  # one step after a meeting
    params, state = plan.taken_over(TXS[after], ADAM, *run, mesh=mesh)
    for new, old in ((params, run[0]), (moments(state), moments(run[1]))):
        assert relaxjax.spread(new) == 0
        assert_equal(relaxjax.consensus(new), relaxjax.consensus(old))
    assert int(moments(state).count[0]) == 4
    params, state = trained(TXS[after], mesh, (params, state), 4, 10)
    assert np.isfinite(relaxjax.consensus(params)["layer1"]["w"]).all()
    assert after in ("local_sgd", "diloco") or relaxjax.spread(params) == 0


def test_the_same_relaxation_goes_on_as_if_nothing_had_been():
    mesh, tx = mesh_of(N), TXS["all_reduce"]
    start = relaxjax.init(tx, helpers.problem(), mesh)
    whole = trained(tx, mesh, start, 0, 8)
    half = plan.taken_over(tx, ADAM, *trained(tx, mesh, start, 0, 4), mesh=mesh)
    assert_equal(whole, trained(tx, mesh, half, 4, 8))


def test_to_a_reducer_by_another_way_is_the_run_of_one():
    mesh = emulate(N)
    start = relaxjax.init(TXS["all_reduce"], helpers.problem(), mesh)
    whole, _ = trained(TXS["all_reduce"], mesh, start, 0, 8)
    half = trained(TXS["all_reduce"], mesh, start, 0, 4)
    ring = optax.chain(relaxjax.all_reduce("data", algorithm="ring"), ADAM)
    half = plan.taken_over(ring, ADAM, *half, mesh=mesh)
    assert_close(trained(ring, mesh, half, 4, 8)[0], whole, 1e-5)


def test_an_optimizer_without_memory_has_nothing_to_take_over():
    sgd, mesh = optax.sgd(0.1), emulate(N)
    tx = optax.chain(relaxjax.all_reduce("data"), sgd)
    local = optax.chain(sgd, relaxjax.local_sgd("data", 3))
    run = trained(local, mesh, relaxjax.init(local, helpers.problem(), mesh), 0, 4)
    params, _ = plan.taken_over(tx, sgd, *run, mesh=mesh)
    assert_equal(relaxjax.consensus(params), relaxjax.consensus(run[0]))


def test_another_optimizer_is_refused():
    mesh = emulate(N)
    run = relaxjax.init(TXS["all_reduce"], helpers.problem(), mesh)
    momentum = optax.sgd(0.1, momentum=0.9)
    with pytest.raises(ValueError, match="opt_state has 0 states of this optimizer"):
        plan.taken_over(TXS["local_sgd"], momentum, *run, mesh=mesh)
    tx = optax.chain(relaxjax.all_reduce("data"), momentum)
    with pytest.raises(ValueError, match="tx has 0 states of this optimizer"):
        plan.taken_over(tx, ADAM, *run, mesh=mesh)


@pytest.mark.long
def test_a_row_of_a_ranking_is_taken_over():
    """What the autopilot says is what runs."""
    mesh, shapes = emulate(N), helpers.problem()
    model = plan.Model(params=shapes, compute=0.01)
    rows = plan.rank(model, plan.Network(workers=N), quality="unmeasured").rows
    labels = ("all_reduce", "all_reduce+quantize8@two_shot", "local_sgd", "diloco")
    txs = [
        plan.transformation(row, "data", ADAM, N) for row in rows if row.label in labels
    ]
    assert len(txs) == len(labels)
    run = relaxjax.init(txs[0], shapes, mesh)
    for k, tx in enumerate(txs):
        run = plan.taken_over(tx, ADAM, *run, mesh=mesh)
        run = trained(tx, mesh, run, 2 * k, 2 * k + 2)
    assert int(moments(run[1]).count[0]) == 2 * len(txs)


@pytest.mark.parametrize("place", [emulate, mesh_of])
@pytest.mark.parametrize(
    ("before", "steps", "sent"),
    [
        ("all_reduce", 4, []),
        ("local_sgd", 4, ["params", "mu", "nu"]),
    ],
)
def test_only_what_differs_is_sent(before, steps, sent, place, monkeypatch):
    """A change comes when the link is slow; see the cost on top of the module."""
    mesh, tx, means = place(N), TXS[before], []
    run = trained(tx, mesh, relaxjax.init(tx, helpers.problem(), mesh), 0, steps)
    own = moments(run[1])
    named = {"params": run[0], "mu": own.mu, "nu": own.nu, "count": own.count}
    known = {id(x): name for name, t in named.items() for x in jax.tree.leaves(t)}

    def seen(leaves: Any) -> Any:
        means.extend(known[id(x)] for x in leaves)
        return at_mean(leaves)

    monkeypatch.setattr(_taken_over, "at_mean", seen)
    params, _ = plan.taken_over(TXS["signs"], ADAM, *run, mesh=mesh)
    assert [*dict.fromkeys(means)] == sent
    assert relaxjax.spread(params) == 0


def test_what_is_not_of_these_workers_is_refused():
    mesh, tx = emulate(N), TXS["all_reduce"]
    fewer = relaxjax.init(tx, helpers.problem(), emulate(2))
    with pytest.raises(ValueError, match=r"of params has shape \(2, .*must be \[4,"):
        plan.taken_over(tx, ADAM, *fewer, mesh=mesh)
    run = relaxjax.init(tx, helpers.problem(), mesh)
    with pytest.raises(ValueError, match=r"of opt_state has shape \(2,"):
        plan.taken_over(tx, ADAM, run[0], fewer[1], mesh=mesh)
    shards, state = fsdp.init(ADAM, helpers.problem(), mesh)
    with pytest.raises(ValueError, match="lie sharded"):
        plan.taken_over(tx, ADAM, shards, state, mesh=mesh)


def test_a_transformation_in_the_wrong_place_is_refused_as_at_a_start():
    mesh, tx = emulate(N), TXS["all_reduce"]
    run = relaxjax.init(tx, helpers.problem(), mesh)
    wrong = optax.chain(relaxjax.local_sgd("data", 3), ADAM)
    with pytest.raises(ValueError, match="local_sgd"):
        plan.taken_over(wrong, ADAM, *run, mesh=mesh)

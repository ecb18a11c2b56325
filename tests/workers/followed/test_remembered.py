"""Optimizers that undo a meeting of models: who does, who is told, and what helps.

The law: models that have met stay together where no gradient parts them. A probe asks
each optimizer, and `init` warns of those that break it, and of no others.
"""

import re
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

import relaxjax
from relaxjax import desynced, diloco, emulate, gossip, local_sgd, periods, topology

EVERY = 4
MESH = emulate(4)
FOURS = periods.table([EVERY])
START = {"w": jnp.ones(3), "b": jnp.asarray(0.5)}
TARGETS = np.array([[1, 0, 0], [0, 2, 0], [0, 0, 3], [-2, -2, -2]], np.float32)

BACK: dict[str, Any] = {
    "cocob": contrib.cocob(),
    "madgrad": contrib.madgrad(0.1),
    "schedule_free_sgd": contrib.schedule_free_sgd(0.1),
    "schedule_free_adamw": contrib.schedule_free_adamw(0.1),
}
STAY: dict[str, Any] = {
    "sgd": optax.sgd(0.1),
    "dog": contrib.dog(),  # remembers params, and takes a distance from them
    "dowg": contrib.dowg(),
    "mechanize": contrib.mechanize(optax.sgd(1.0), s_init=0.1),
    "keep_params_nonnegative": optax.chain(
        optax.sgd(0.1), optax.keep_params_nonnegative()
    ),
}


def met(tx: Any, every: int = EVERY) -> tuple[list[float], list[str]]:
    """Spreads before and at a meeting, and in zero gradients after it; warnings."""

    def step(params, state, batch):
        target, is_on = batch
        grads = {
            "w": is_on[0] * (params["w"] - target[0]),
            "b": is_on[0] * target[0, 0],
        }
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, {}

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        params, state = relaxjax.init(tx, START, MESH)
    train, spreads = relaxjax.data_parallel(step, MESH), []
    for number in range(2 * every - 1):
        is_on = np.full(4, number < every, np.float32)
        params, state, _ = train(params, state, (TARGETS, is_on))
        spreads.append(relaxjax.spread(params))
    said = [str(w.message) for w in caught if "remembers" in str(w.message)]
    return spreads[every - 2 :], said


def forms(optimizer: Any, every: int = EVERY) -> dict[str, Any]:
    return {
        "local_sgd": optax.chain(optimizer, local_sgd("data", every)),
        "diloco": diloco(optimizer, "data", every),
    }


@pytest.mark.few(8)
@pytest.mark.parametrize("form", ["local_sgd", "diloco"])
@pytest.mark.parametrize("name", BACK)
def test_who_goes_back_is_told_and_so_is_what_helps(name, form):
    (before, at, *after), said = met(forms(BACK[name])[form])
    assert at < 1e-3 * before
    assert max(after) > 0.1 * before
    (words,) = said
    assert f": {form} brings models together" in words
    named = dict.fromkeys(re.findall(r"'(\w+)': H", words), EVERY)
    for helps in (named, EVERY):
        (before, *after), said = met(desynced(BACK[name], "data", periods=helps))
        assert 0 < before > 1e3 * max(after)
        assert not said


@pytest.mark.parametrize("form", ["local_sgd", "diloco"])
@pytest.mark.parametrize("name", STAY)
def test_who_stays_is_not_warned_of(name, form):
    (before, *after), said = met(forms(STAY[name])[form])
    assert 0 < before > 1e3 * max(after)
    assert not said


def test_the_warning_names_the_leaf_the_relaxation_and_its_axis():
    round_of = gossip("data", topology.ring(4))
    tx = optax.chain(contrib.schedule_free_sgd(0.1), round_of)
    with pytest.warns(
        UserWarning,
        match=r"init: the optimizer remembers params in '0/z/b' .*: gossip brings .*"
        r"desynced\(optimizer, 'data', periods=\{'params': H, 'max_lr': H, "
        r"'weight_sum': H, 'z': H\}\)",
    ):
        relaxjax.init(tx, START, MESH)


def test_behind_a_reducer_all_remember_the_same():
    tx = optax.chain(relaxjax.all_reduce("data"), contrib.schedule_free_sgd(0.1))
    relaxjax.init(tx, START, MESH)


def test_a_state_without_fields_has_no_remedy_by_name():
    def update(updates, state, params=None):
        new = jax.tree.map(lambda z, u: z - 0.1 * u, state[0], updates)
        return jax.tree.map(jnp.subtract, new, params), (new,)

    tx = optax.GradientTransformation(lambda params: (params,), update)
    with pytest.warns(UserWarning, match=r"remembers params in '0/0/b'"):
        relaxjax.init(optax.chain(tx, local_sgd("data", 2)), START, MESH)


def sam(period: int, optimizer: Any = None) -> Any:
    inner = optimizer or optax.sgd(0.1)
    return contrib.sam(inner, optax.sgd(0.1), sync_period=period)


@pytest.mark.few(10)
@pytest.mark.parametrize("form", ["local_sgd", "diloco"])
@pytest.mark.parametrize(("period", "every"), [(2, 3), (2, 5), (3, 4), (3, 5), (4, 6)])
def test_sam_is_told_of_where_models_meet_between_its_steps(form, period, every):
    (before, at, *after), said = met(forms(sam(period), every)[form], every)
    assert at < 1e-3 * before
    assert max(after) > 0.1 * before
    (words,) = said
    assert "at some of its steps, as sam's do" in words
    (before, *after), said = met(desynced(sam(period), "data", periods=every), every)
    assert 0 < before > 1e3 * max(after)
    assert not said


@pytest.mark.few(8)
@pytest.mark.parametrize("form", ["local_sgd", "diloco"])
@pytest.mark.parametrize(("period", "every"), [(2, 2), (2, 4), (3, 3), (3, 6)])
def test_sam_is_not_warned_of_where_models_meet_after_its_steps(form, period, every):
    (before, *after), said = met(forms(sam(period), every)[form], every)
    assert 0 < before > 1e3 * max(after)
    assert not said
    by_adam = sam(period, optax.adam(0.1))  # whose counter never comes back
    relaxjax.init(forms(by_adam, every)[form], START, MESH)


def test_sam_beside_gossip_in_each_step_and_inside_of_a_chain_is_told_of():
    for tx in (
        optax.chain(sam(2), gossip("data", topology.ring(4))),
        optax.chain(optax.clip(1.0), sam(2), local_sgd("data", 3)),
        optax.chain(sam(2, optax.adam(0.1)), local_sgd("data", 25)),
    ):
        with pytest.warns(UserWarning, match="at some of its steps"):
            relaxjax.init(tx, START, MESH)


@pytest.mark.few(16)
@pytest.mark.parametrize(
    ("every", "is_told"),
    [
        ({"params": 4}, True),
        ({"params": 4, "max_lr": 4, "weight_sum": 4}, True),
        ({"params": 4, "z": 8}, True),
        ({"params": 4, "z": 3}, True),
        ({"params": 4, "z": 4}, False),
        ({"params": 4, "z": 2}, False),
        (4, False),
        ({"params": FOURS, "z": FOURS}, False),
        ({"params": FOURS, "z": periods.table([3, 4])}, True),
        (FOURS, False),
    ],
)
def test_desynced_is_told_of_what_is_remembered_and_does_not_meet(every, is_told):
    optimizer = BACK["schedule_free_sgd"]
    (before, _, *after), said = met(desynced(optimizer, "data", periods=every))
    assert (max(after) > 0.1 * before) == is_told
    assert len(said) == is_told


@pytest.mark.parametrize("name", ["cocob", "madgrad"])
def test_a_place_that_never_changes_meets_by_what_leads_there(name):
    assert len(met(desynced(BACK[name], "data", periods={"params": EVERY}))[1]) == 1

"""Periods as text: what they name, what they take from the run, what is refused."""

from typing import Any

import jax.numpy as jnp
import optax
import pytest

from relaxjax import emulate, periods, wire_bytes
from relaxjax._core._relaxation import Training
from relaxjax._names import RELAXATIONS, parse
from relaxjax.periods import spelled
from relaxjax.tasks import schedule

STEPS = 200
RATE = schedule(0.01, STEPS)  # highest after 20 steps
TRAINING = Training(optax.adam(0.01), RATE, STEPS, 4)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("7", 7),
        ("qsr:alpha=0.02", periods.qsr(RATE, 0.02, warm_up=20, steps=STEPS)),
        ("qsr:peaks=2", periods.qsr(RATE, 0.02, warm_up=20, steps=STEPS)),
        (
            "qsr:alpha=0.03,power=1,least=2,most=9,warm_up=0",
            periods.qsr(RATE, 0.03, power=1, least=2, most=9, steps=STEPS),
        ),
        ("table:4,4,7,9", periods.table([4, 4, 7, 9])),
        ("table:0=4,100=16", periods.table([(0, 4), (100, 16)])),
        ("post_local:step=50,sync_every=16", periods.post_local(50, 16)),
        ("stages:steps=40,sync_every=2,growth=1.5", periods.stages(40, 2, growth=1.5)),
    ],
)
def test_a_text_names_a_period(text, same):
    found = periods.meetings(spelled(text, RATE, STEPS), STEPS)
    assert found == periods.meetings(same, STEPS)
    assert len(found) > 5


def test_a_constant_rate_is_highest_at_once():
    rule: Any = spelled("qsr:peaks=3", 0.5, 100)
    assert periods.meetings(rule, 100) == [*range(9, 100, 9), 100]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("qrs:alpha=1", r"there is no schedule 'qrs'; there is qsr, table, post_local"),
        ("", r"there is no schedule ''"),
        ("qsr", r"qsr needs alpha, as in alpha=2"),
        ("qsr:alpha", r"'' must be a number"),
        ("qsr:alpha=nan", r"'nan' must be a number"),
        ("qsr:beta=1", r"qsr has no 'beta'; it has alpha, least, most, power"),
        ("table:4,x", r"'x' must be a number"),
        ("table:", r"there must be one period at least"),
        ("table:4,2.5", r"periods\[1\]=2.5 must be a whole number"),
        ("post_local:step=4", r"post_local needs sync_every"),
        ("stages:steps=4,sync_every=0", r"sync_every=0 must be a whole number"),
    ],
)
def test_what_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        spelled(text, RATE, STEPS)


@pytest.mark.few(6)
@pytest.mark.parametrize("name", RELAXATIONS)
def test_a_relaxation_by_name_takes_it_or_says_why_not(name):
    choice = parse(name)
    able = choice.row.options & {"sync_every", "every", "periods"}
    turns = name in ("asynchronous_diloco", "heloco")  # a table of arrivals
    if not able or turns:
        with pytest.raises(ValueError, match=r"has no period|must be a whole number"):
            choice.build("data", TRAINING, periods="table:3,1,5")
        return
    assert choice.period(periods="table:3,1,5") is None
    params = {"w": jnp.zeros((6, 8)), "b": jnp.zeros(7)}

    def sent(text: str) -> int:
        tx = choice.build("data", TRAINING, periods=text)
        return wire_bytes(tx, params, emulate(4), steps=12, start=100)

    assert sent("table:3,1,5") < sent("table:3,1,1")


def test_a_number_is_the_option():
    params = {"w": jnp.zeros((6, 8))}
    for name, option in (("local_sgd", "sync_every"), ("gossip", "every")):
        choice = parse(name)
        pair = [
            wire_bytes(choice.build("data", TRAINING, **how), params, emulate(4))
            for how in ({"periods": "5"}, {option: 5})
        ]
        assert pair[0] == pair[1] > 0

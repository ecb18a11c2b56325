"""Islands that merge by a table of periods: when, from where, and who agrees."""

import itertools
from typing import Any

import jax.numpy as jnp
import pytest

import relaxjax
from relaxjax import islands
from relaxjax.islands.carriers._foreign import DamagedFile
from relaxjax.islands.carriers._open import open_store
from relaxjax.islands.common._agreed import Agreed, Settings
from relaxjax.islands.common._files import seal
from relaxjax.islands.common._when_due import check_period, period_of, step_of

ROWS = [(0, 2), (5, 4), (12, 8)]
PARAMS = {"a": jnp.zeros(3), "b": jnp.ones(2)}
HOW: dict[str, Any] = {"mode": "rounds", "merge": "mean", "poll": 0.002}


def join(folder: Any, name: str = "one", **how: Any) -> islands.Island:
    given: Any = HOW | {"fragments": 1, "sync_every": ROWS} | how
    return islands.join(PARAMS, f"folder:{folder}", name, **given)


def merges_of(island: islands.Island, steps: int) -> list[int]:
    """Steps after which a merge has come about."""
    found, params = [], island.params
    for step in range(1, steps + 1):
        before = island.version
        params = {name: x + 1 for name, x in params.items()}
        params = island.exchange(params)
        found += [step] if island.version > before else []
    return found


@pytest.mark.parametrize("rows", [ROWS, [(0, 3)], [(0, 1), (1, 7), (2, 5), (90, 2)]])
def test_merges_come_where_the_schedule_meets(rows):
    met = relaxjax.periods.meetings(relaxjax.periods.table(rows), 100)
    assert [step_of(period_of(rows), 1, v + 1) for v in range(len(met))] == met
    assert step_of(period_of(rows), 1, 0) == 0


def test_a_table_of_one_row_is_the_number():
    for version in range(9):
        assert step_of(((0, 6),), 3, version) == step_of(6, 3, version) == 2 * version


def test_the_last_row_has_no_end():
    assert step_of(3, 1, 2**40) == 3 * 2**40
    assert step_of(((0, 1), (5, 2)), 1, 5 + 2**40) == 5 + 2**41


def test_an_island_merges_at_these_steps(tmp_path):
    with join(tmp_path) as island:
        assert merges_of(island, 30) == [2, 4, 6, 10, 14, 22, 30]


def test_fragments_take_turns_within_a_period(tmp_path):
    with join(tmp_path, fragments=2) as island:
        assert merges_of(island, 14) == [1, 2, 3, 4, 5, 7, 9, 11, 13]


def test_who_joins_late_begins_where_the_run_stands(tmp_path):
    with join(tmp_path) as island:
        merges_of(island, 10)
    with join(tmp_path, "two") as late:
        assert late.version == 4
        assert late.first_step == 10
        assert [*late.steps(13)] == [10, 11, 12]


def test_all_agree_on_the_table(tmp_path):
    with join(tmp_path):
        with join(tmp_path, "two", sync_every=tuple(map(list, ROWS))):
            pass
        with pytest.raises(ValueError, match=r"sync_every is .* here and .* there"):
            join(tmp_path, "three", sync_every=[(0, 2), (5, 6)])
        with pytest.raises(ValueError, match="sync_every is 2 here"):
            join(tmp_path, "three", sync_every=2)
    run = Agreed.read(open_store(f"folder:{tmp_path}"))
    assert run.settings.sync_every == tuple(ROWS)
    assert Settings.read(run.settings.record()) == run.settings


def test_a_schedule_is_given_as_its_rows(tmp_path):
    schedule = relaxjax.periods.stages(4, 2)
    with pytest.raises(
        TypeError, match=r"is a function, and islands must agree .* rows"
    ):
        join(tmp_path, sync_every=schedule)
    met = relaxjax.periods.meetings(schedule, 40)
    rows = [(a, b - a) for a, b in itertools.pairwise([0, *met])]
    assert [step_of(period_of(rows), 1, v + 1) for v in range(len(met))] == met


@pytest.mark.parametrize(
    ("period", "message"),
    [
        (0, "sync_every=0 must be a whole number"),
        (5, "sync_every=5 must be a multiple of fragments=2, such as 6"),
        (((0, 2), (4, 3)), "sync_every=3 must be a multiple"),
        (((1, 2),), "must begin at 0 and rise"),
        (((0, 2), (0, 4)), "must begin at 0 and rise"),
        ((), "must begin at 0 and rise"),
        (((0, 2), 7), r"must be rows \(step, period\)"),
        (((0, 2, 3),), r"must be rows \(step, period\)"),
        (((0, 2.5),), "sync_every=2.5 must be a whole number"),
        ("24", "sync_every='24' must be a whole number"),
        (10**400, "must be a whole number, 2147483647 or less"),
        (((0, 2), (2**40, 4)), "a step of sync_every=.* 2147483647 or less"),
    ],
)
def test_refuses_what_is_no_period(period, message):
    with pytest.raises(ValueError, match=message):
        check_period(period_of(period), 2)


@pytest.mark.parametrize("odd", [[[0, "x"]], [["0", 2]], {"0": 2}, [[3, 2]], None])
def test_a_table_of_somebody_else_is_read_with_care(odd, tmp_path):
    with join(tmp_path):
        pass
    store = open_store(f"folder:{tmp_path}")
    body = Agreed.read(store).record() | {"sync_every": odd}
    store.replace("run.json", seal(body))
    with pytest.raises(DamagedFile, match=r"run\.json"):
        Agreed.read(store)

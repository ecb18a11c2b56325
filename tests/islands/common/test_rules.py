"""Islands that merge by a rule of `relaxjax.merges`."""

import json
from typing import Any

import numpy as np
import pytest

from relaxjax import merges
from relaxjax.islands.carriers._foreign import DamagedFile
from relaxjax.islands.carriers._store import FILE
from relaxjax.islands.common import _log as log
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._bounds import Part
from relaxjax.islands.common._files import seal
from relaxjax.islands.common._merge import first_outer, merge
from relaxjax.islands.replayed._replay import replay
from tests.islands.common.test_wrong_members import IN, OUT, QUORUM, anchors, rounds
from tests.islands.one.test_island import H, emulated, together
from tests.islands.world import PARAMS, SETTINGS, Memory, World

RULES = [
    merges.clipped(),
    merges.clipped("all"),
    merges.rda(),
    merges.median(),
    merges.trimmed(1),
    merges.geometric_median(),
    merges.centered_clip(4.0, 3),
    merges.nearest(1, merges.median()),
]
every_rule = pytest.mark.parametrize("rule", RULES, ids=repr)


def lines(world: World) -> list[dict[str, Any]]:
    return [log.read(world.store, v)[0] for v in range(log.newest(world.store) + 1)]


@every_rule
def test_a_run_says_its_rule_as_plain_data(rule):
    store, run = Memory(), Agreed.of(SETTINGS._replace(merge=rule), PARAMS)
    run.agree(store)
    said = json.loads(store.read(FILE))["merge"]
    assert said["merge"] == rule.name
    assert Agreed.read(store) == run
    assert hash(Agreed.read(store).settings) == hash(run.settings)
    run.agree(store)  # another island's
    other = Agreed.of(SETTINGS._replace(merge=merges.trimmed(2)), PARAMS)
    for joiner in (other, Agreed.of(SETTINGS, PARAMS)):
        with pytest.raises(ValueError, match=r"has begun otherwise: merge is .* here"):
            joiner.agree(store)


def test_words_stay_words():
    """Runs of older versions are read as they were written."""
    store = Memory()
    Agreed.of(SETTINGS, PARAMS).agree(store)
    assert json.loads(store.read(FILE))["merge"] == "rda"
    assert Agreed.read(store).settings.merge == "rda"


@pytest.mark.parametrize(
    "said",
    [
        {},
        [],
        ["median"],
        {"merge": "mode"},
        {"merge": "trimmed", "b": -1},
        {"merge": "trimmed", "b": 1e300},
        {"merge": "clipped", "cap": "2"},
        {"merge": "nearest", "f": 1, "rule": {"merge": "nearest"}},
        {"merge": "nearest", "f": 1, "rule": 3},
        {"merge": {"merge": "median"}},
        None,
        7,
    ],
)
def test_another_rule_in_a_file_is_damage(said):
    store = Memory()
    record = Agreed.of(SETTINGS, PARAMS).record()
    store.replace(FILE, seal({**record, "merge": said}))
    with pytest.raises(DamagedFile, match=FILE):
        Agreed.read(store)


@pytest.mark.long
@pytest.mark.few(10)
@every_rule
@pytest.mark.parametrize("attack", [*OUT, *IN])
def test_merges_are_by_the_rule_and_replay_to_the_bit(rule, attack):
    """`World` merges them by hand, from rows in memory; nothing else bounds lengths."""
    world = World(QUORUM._replace(merge=rule, limit=None, cap=None))
    rounds(world, {**OUT, **IN}[attack], tokens=64, count=4)
    found = lines(world)
    assert len(found) == 5
    present = 3 if "N" in attack or attack == "Inf" else 4
    assert all(len(x["contributions"]) == present for x in found[3:])
    done = list(replay(world.store))
    assert len(done) == 4
    assert all(x.is_equal and not x.fault for x in done)


@pytest.mark.few(8)
@every_rule
def test_a_member_that_goes_far_moves_the_others_little(rule):
    """Without the limit of islands, against the same run without that member."""
    far, without = (
        World(QUORUM._replace(merge=rule, limit=None, cap=None)) for _ in range(2)
    )
    rounds(far, OUT["x1000"], tokens=8000)
    rounds(without, None)
    assert anchors(lines(far)) != anchors(lines(without))
    for number, mine in far.anchors.items():
        for name, x in mine.items():
            assert np.abs(x - without.anchors[number][name]).max() < 12


@pytest.mark.long
def test_the_words_have_no_such_bound():
    anchor = {"a": np.zeros(3, np.float32)}
    moves = np.array([[1, 1, 1], [1, 2, 1], [2, 1, 1], [-1000, 1, 1]], np.float32)
    parts = [Part({"a": -move}, 8, 1) for move in moves]

    def moved(rule: Any) -> float:
        settings = SETTINGS._replace(merge=rule)
        outer = first_outer(settings, anchor)
        return float(np.abs(merge(settings, anchor, outer, parts).anchor["a"]).max())

    assert all(moved(rule) < 8 for rule in RULES)
    assert moved("mean") > 100
    assert moved("rda") > 100


@pytest.mark.parametrize("code", ["top_k", "random_k", "quantize8+ef14"])
def test_codes_that_a_median_does_not_survive_are_refused(code):
    settings = SETTINGS._replace(merge=merges.median(), compressor=code)
    with pytest.raises(ValueError, match=r"islands: merge=median\(\) with comp"):
        settings.check()
    settings._replace(merge=merges.clipped()).check()
    settings._replace(compressor="quantize8").check()


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("rule", [merges.clipped(), merges.median()], ids=repr)
def test_rounds_equal_the_emulated_transformation(tmp_path, rule):
    """Threads, a folder, and the same in one program, to rounding."""
    tokens, steps = [8, 2, 5], 4 * H
    bounds: dict[str, Any] = {"limit": None, "cap": None}
    found = together(tmp_path, steps, tokens, quorum=3, merge=rule, **bounds)
    expected = emulated(steps, rule, tokens)
    for i in range(3):
        params, island = found[f"island{i}"]
        assert island.version == steps // (H // 2)
        for name, x in params.items():
            np.testing.assert_allclose(x, expected[name][i], rtol=1e-5, atol=1e-6)

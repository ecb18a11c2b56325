"""A member that is wrong: left out and named, and nobody else's model suffers."""

import functools
import threading
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from relaxjax import islands
from relaxjax.islands.carriers._open import open_store
from relaxjax.islands.carriers._store import FILE
from relaxjax.islands.common import _log as log
from relaxjax.islands.common import _syncer
from relaxjax.islands.common._agreed import Agreed, Settings
from relaxjax.islands.common._bounds import Before, Measure, bounds_of, length_of
from relaxjax.islands.common._files import seal
from relaxjax.islands.common._round import decide
from relaxjax.islands.replayed._replay import replay
from relaxjax.islands.replayed._tables import tables
from tests.islands.one.test_island import FAST, PARAMS, RUN, TARGETS, records, train
from tests.islands.world import SETTINGS, Process, World

QUORUM = SETTINGS._replace(quorum=3, keep=True)
OUT: dict[str, Any] = {
    "x1000": lambda move: 1000 * move,
    "NaN": lambda move: move * np.nan,
    "Inf": lambda move: move * np.inf,
    "one NaN": lambda move: np.where(move == move.max(), np.nan, move),
}
IN: dict[str, Any] = {
    "sign flip": lambda move: -move,
    "zero": lambda move: 0 * move,
    "x3": lambda move: 3 * move,
}


def same(move: Any) -> Any:
    return move


def rounds(
    world: World, wrong: Any, tokens: float = 8, count: int = 6
) -> list[Process]:
    """Three islands as they should be, and a fourth from the third merge on."""
    processes = [world.process(name) for name in "abcd"]
    for salt in range(count):
        for p in processes:
            p.adopt()
            is_wrong = p is processes[3] and salt > 1
            if wrong is None and is_wrong:
                continue
            count_as = tokens if is_wrong else 8
            p.offer(count_as, 2, salt, wrong=(wrong or same) if is_wrong else same)
        for p in processes:
            p.turn()
        world.now += 2
        for p in processes[:1]:
            p.turn()
        world.check()
    for p in processes:
        p.adopt()
    return processes


def lines(world: World) -> list[dict[str, Any]]:
    return [log.read(world.store, v)[0] for v in range(log.newest(world.store) + 1)]


def anchors(found: list[dict[str, Any]]) -> list[str]:
    return [files["anchor"][1] for x in found[1:] for files in x["files"].values()]


@pytest.mark.parametrize("attack", OUT)
def test_what_is_out_of_bounds_is_as_if_absent(attack):
    """To the bit; named once, and told once; it goes on from the common model."""
    world, without = World(QUORUM), World(QUORUM)
    processes = rounds(world, OUT[attack])
    rounds(without, None)
    found = lines(world)
    assert anchors(found) == anchors(lines(without))
    assert len(found) == 7
    assert [[c["island"] for c in x["left_out"]] for x in found[3:]] == [["d"]] * 4
    assert {x["refused"][0][0] for x in found[3:]} == {
        f"offers/{v:08d}/d.000001" for v in range(3, 7)
    }
    said = [[w for w in p.said if "left out" in w] for p in processes]
    assert [len(words) for words in said] == [1, 0, 0, 1]
    assert "offers/00000003/d.000001 is left out" in said[0][0]
    assert "what this island contributed" in said[3][0]
    assert processes[3].has[1].version == 6
    assert all(merge.is_equal and not merge.fault for merge in replay(world.store))


@pytest.mark.parametrize("attack", IN)
def test_what_is_within_bounds_is_merged(attack):
    """`World` merges it by hand, in float64."""
    world = World(QUORUM)
    rounds(world, IN[attack])
    assert all(len(x["contributions"]) == 4 for x in lines(world)[1:])
    assert all(merge.is_equal and not merge.fault for merge in replay(world.store))


@pytest.mark.parametrize("tokens", [8e3, 1e15])
def test_tokens_count_up_to_the_cap(tokens):
    """Whatever it says, a member weighs up to four times what the median does."""
    world = World(QUORUM)
    rounds(world, IN["x3"], tokens)
    for line in lines(world)[3:]:
        weights = [c["weight"] for c in line["contributions"]]
        np.testing.assert_allclose(weights, [32, 32, 32, 128])
        assert line["contributions"][3]["tokens"] == tokens
    assert all(merge.is_equal and not merge.fault for merge in replay(world.store))


def test_where_all_are_left_out_all_go_on_from_the_same_model():
    """The version is committed, and the fragment and its momentum stay as they were."""
    world = World(QUORUM._replace(quorum=1))
    one = world.process("a")
    for salt in range(4):
        one.adopt()
        one.offer(8, 2, salt, wrong=OUT["NaN"] if salt > 1 else same)
        assert one.turn() or one.turn()
        world.check()
    one.adopt()
    assert one.has[1].version == 4
    found = lines(world)
    assert anchors(found)[2:] == anchors(found)[:2]
    assert found[3]["files"]["0"]["outer"][1] == found[1]["files"]["0"]["outer"][1]
    assert sum("left out what this island" in words for words in one.said) == 1
    one.offer(8, 2, 5)
    assert one.turn()
    world.check()
    assert all(merge.is_equal and not merge.fault for merge in replay(world.store))


def test_two_are_held_against_the_last_merges():
    """With two present, the one that is as it should be is not left out for it."""
    world = World(QUORUM._replace(quorum=2))
    rounds(world, IN["x3"], count=4)
    world.now += 100
    processes = [world.process(name) for name in "ab"]
    for p, wrong in zip(processes, (IN["x3"], OUT["x1000"]), strict=True):
        p.adopt()
        p.offer(8, 2, 9, wrong=wrong)
    for p in processes * 6:
        p.turn()
        world.now += 1
    world.check()
    last = lines(world)[-1]
    assert [c["island"] for c in last["contributions"]] == ["a"]
    assert [c["cause"] for c in last["left_out"]] == ["length"]


def alone(world: World, one: Process, wrong: Any, salt: int) -> None:
    """A contribution and a merge; the others beat, and have nothing to say."""
    one.adopt()
    one.offer(8, 2, salt, wrong=wrong)
    assert one.turn() or one.turn()
    world.check()


@pytest.mark.parametrize("quorum", [1, 2, 3])
def test_where_the_others_stand_still_a_large_move_is_left_out(quorum):
    """Alone or not; and the first move after it is merged if a majority makes it."""
    world = World(QUORUM._replace(quorum=quorum, grace=0.0))
    processes = [world.process(name) for name in "abcd"]
    for salt in range(6):
        wrong = [IN["zero"]] * 4
        if salt in (2, 3):
            wrong[3] = lambda move: move * 0 + 1e10
        elif salt > 3:
            wrong = [same] * 3 + [IN["zero"]]
        for p in processes:
            p.adopt()
        for p, how in zip(processes, wrong, strict=True):
            p.offer(8, 2, salt, wrong=how)
        for p in processes * 2:
            if p.turn():
                break
        world.check()
    found = lines(world)
    assert [[c["island"] for c in x["left_out"]] for x in found[1:]] == [
        *([], [], ["d"], ["d"], [], []),
    ]
    assert "the others stand still" in found[3]["left_out"][0]["why"]
    if quorum == 1:
        alone(world, processes[0], IN["zero"], 6)
        alone(world, processes[0], lambda move: move * 0 + 1e10, 7)
    assert all(merge.is_equal and not merge.fault for merge in replay(world.store))


def test_a_first_small_move_alone_is_merged_where_all_stood_still():
    world = World(QUORUM._replace(quorum=1, grace=0.0))
    processes = [world.process(name) for name in "abc"]
    for salt in range(2):
        for p in processes:
            p.adopt()
            p.offer(8, 2, salt, wrong=IN["zero"])
        assert any(p.turn() for p in processes * 2)
    alone(world, processes[0], lambda move: 0.1 * move, 3)
    alone(world, processes[0], lambda move: move * 0 + 1e10, 4)
    found = lines(world)
    assert [[c["island"] for c in x["left_out"]] for x in found[3:]] == [[], ["a"]]
    assert all(merge.is_equal and not merge.fault for merge in replay(world.store))


def test_who_merges_alone_does_not_raise_its_own_reference():
    """One of three is fast, and its moves grow; the others are heard, and bound it."""
    world = World(QUORUM._replace(quorum=1, grace=0.0))
    processes = [world.process(name) for name in "abc"]
    for salt in range(2):
        for p in processes:
            p.adopt()
            p.offer(8, 2, salt)
        assert any(p.turn() for p in processes * 2)
    for k in range(40):
        alone(world, processes[0], lambda move, k=k: 1.6**k * move, 2 + k)
    longest = max(c["length"] for x in lines(world) for c in x["contributions"])
    assert longest < 10 * 10
    found = lines(world)
    assert all(len(x["contributions"]) == 1 for x in found[3:8])
    assert all(len(x["left_out"]) == 1 for x in found[-20:])
    assert all(merge.is_equal and not merge.fault for merge in replay(world.store))


def test_who_is_left_behind_by_the_others_goes_on():
    """Members that are gone bound nobody after four merges."""
    world = World(QUORUM._replace(quorum=1, grace=0.0))
    processes = [world.process(name) for name in "abc"]
    for salt in range(2):
        for p in processes:
            p.adopt()
            p.offer(8, 2, salt)
        assert any(p.turn() for p in processes * 2)
    for p in processes[1:]:
        p.channel.leave()
    for k in range(16):
        alone(world, processes[0], lambda move, k=k: 1.3**k * move, 2 + k)
    assert not any(x["left_out"] for x in lines(world)[1:])
    assert list(lines(world)[-1]["bounds"]["members"]) == ["a"]
    assert all(merge.is_equal and not merge.fault for merge in replay(world.store))


@pytest.mark.parametrize("key", ["left_out", "bounds", "length"])
def test_a_changed_decision_is_found(key):
    world = World(QUORUM)
    rounds(world, OUT["x1000"])
    record, _ = log.read(world.store, 5)
    if key == "length":
        record["contributions"][0]["length"] *= 1.5
    elif key == "bounds":
        record["bounds"]["length"] *= 1.5
    else:
        record["contributions"].append({**record["left_out"].pop(), "weight": 32.0})
    world.store.replace(log.file_of(5), seal(record))
    last = list(replay(world.store))[-1]
    assert last.version == 5
    assert "log/00000005" in last.fault


def test_lines_of_older_versions_are_merged_again_as_they_were():
    """They have neither lengths nor bounds: all that they name was merged."""
    world = World(QUORUM._replace(limit=None, cap=None))
    world.check = lambda: None  # which bounds what is merged
    rounds(world, OUT["x1000"], tokens=8e6)
    settings = world.run.settings._replace(limit=10.0, cap=2.0)
    world.store.files[FILE] = seal(Agreed.of(settings, world.start).record())
    previous = ""
    for version in range(log.newest(world.store) + 1):
        record, _ = log.read(world.store, version)
        for key in ("bounds", "left_out"):
            record.pop(key, None)
        for said in record["contributions"]:
            del said["length"]
        name = log.file_of(version)
        world.store.replace(name, seal({**record, "previous": previous}))
        previous = log.read(world.store, version)[1]
    done = list(replay(world.store))
    assert len(done) == 6
    assert all(merge.is_equal and not merge.fault for merge in done)
    assert np.isfinite(done[-1].difference)


@pytest.mark.parametrize("attack", ["zero", "x1000"])
def test_lines_without_a_rule_replay_by_the_first_one(attack, monkeypatch):
    """A run that goes on in today's relaxjax has lines of both."""
    monkeypatch.setattr(_syncer, "decide", functools.partial(decide, rule=1))
    world = World(QUORUM)
    world.check = lambda: None  # which knows today's rule
    processes = rounds(world, (IN | OUT)[attack])
    monkeypatch.undo()
    for salt in range(6, 10):
        for p in processes:
            p.adopt()
            p.offer(8, 2, salt)
        for p in processes * 2:
            p.turn()
    rules = [x["bounds"].get("rule", 1) for x in lines(world)[1:]]
    assert rules == [1] * 6 + [2] * 4
    assert list(lines(world)[3]["bounds"]) == ["cap", "length", "limit", "weight"]
    done = list(replay(world.store))
    assert len(done) == 10
    assert all(merge.is_equal and not merge.fault for merge in done)


def float16(count: int) -> World:
    """Islands whose params are float16, which has no number above 65504."""
    params = {k: np.zeros(3, np.float16) for k in "ab"}
    settings = Settings(2, 2, "decoupled", "mean", count, 1.0, 0.7, 0.9, 0, True)
    return World(settings, params=params)


def test_a_merge_that_overflows_float16_is_not_committed():
    world = float16(3)
    processes = [world.process(name) for name in "abc"]
    for salt in range(4):
        for p, far, tokens in zip(
            processes, (2e4, 2e4, 6.5e4), (8, 8, 16), strict=True
        ):
            p.adopt()
            p.offer(tokens, 2, salt, wrong=lambda move, x=-far: np.full(3, x))
        for p in processes * 2:
            p.turn()
        world.now += 2
    found = lines(world)
    assert len(found) == 5
    causes = [c["cause"] for line in found[1:] for c in line["left_out"]]
    assert causes == ["merged", "merged", "finite", "finite"]
    assert (
        found[1]["left_out"][0]["why"] == "merged with it, a in float16 is not finite"
    )
    for p in processes:
        p.adopt()
        for fragment in p.has.values():
            with np.errstate(over="raise"):
                assert all(
                    np.isfinite(x.astype(np.float16)).all()
                    for x in fragment.anchor.values()
                )
    assert all(merge.is_equal and not merge.fault for merge in replay(world.store))


def test_medians_count_from_three_on():
    def bounds(present, before=()):
        groups = [[Measure(x, x) for x in group] for group in (present, before)]
        before = Before(groups[1], {})
        return bounds_of(10.0, 2.0, groups[0], before, lambda: 20.0)[2:4]

    assert bounds([]) == bounds([], [5.0, 5.0]) == (0, 0)
    assert bounds([0.0, 1.0]) == bounds([1.0], [0.0] * 3) == (2, 0)
    assert bounds([4.0]) == (4, 0)
    assert bounds([4.0, 1.0]) == bounds([4.0, 1.0], [9.0, 9.0]) == (1, 0)
    assert bounds([4.0, 1.0], [9.0, 9.0, 8.0]) == (9, 9)
    assert bounds([4.0, 1.0, 2.0], [1.0, 1.0, 1.0]) == (2, 2)
    assert bounds([4.0, 1.0, 2.0, 8.0]) == (3, 3)
    still = [Measure(0.0, 0.0)] * 3, Before([], {}), lambda: 20.0
    assert bounds_of(10.0, 2.0, *still).too_long(20.0) is None
    assert "others stand still" in str(bounds_of(10.0, 2.0, *still).too_long(21.0))
    assert bounds_of(10.0, 2.0, *still).counted(1e15, 1) == 1e15
    assert bounds_of(None, 2.0, *still).too_long(1e30) is None
    assert bounds_of(10.0, 2.0, *still, rule=1).too_long(1e30) is None


def test_a_member_has_one_value():
    """Whoever merges alone is held against the two others, as they were last heard."""
    known = {
        x: (v, Measure(y, y))
        for v, (x, y) in enumerate({"a": 9e9, "b": 1.0, "c": 2.0}.items())
    }
    before = Before([Measure(9e9, 9e9)] * 4, known)
    now = [Measure(1e11, 1e11)], before, lambda: 20.0
    assert bounds_of(10.0, 2.0, *now)[2:4] == (2, 2)
    assert bounds_of(10.0, 2.0, *now, rule=1)[2:4] == (9e9, 9e9)


def test_a_length_is_of_the_whole_fragment(monkeypatch):
    from relaxjax.islands.common import _bounds

    monkeypatch.setattr(_bounds, "_CHUNK", 3)
    anchor = {"a": np.ones((2, 4), np.float32), "b": np.zeros(1, np.float32)}
    model = {"a": np.zeros((2, 4), ml_dtypes.bfloat16), "b": np.ones(1, np.float32)}
    assert length_of(anchor, model) == 3
    for wrong in (np.nan, np.inf, -np.inf):
        assert length_of(anchor, {**model, "b": np.full(1, wrong)}) == np.inf
    far = {**model, "b": np.full(1, 1e300)}
    assert 1e140 < length_of(anchor, far) < np.inf


def trained(folder: Any, wrong: Any, count: int, merge: str) -> dict[str, Any]:
    """Islands in rounds, each with its thread; the third one is wrong."""
    found: dict[str, Any] = {}

    def live(number: int) -> None:
        how = RUN | FAST | {"grace": 60.0, "quorum": count, "merge": merge}
        how |= {"keep": True, "limit": 10.0}
        with islands.join(PARAMS, f"folder:{folder}", f"i{number}", **how) as island:
            params = island.params
            while island.version < 8:
                params = train(params, TARGETS[number])
                if number == 2:
                    params = jax.tree.map(wrong, params)
                params = island.exchange(params, tokens=8)
            found[island.name] = params

    threads = [threading.Thread(target=live, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("merge", ["rda", "mean"])
def test_one_of_three_that_diverges_ruins_nothing(tmp_path, merge, capfd):
    """The others' model is that of two islands, to the bit, and so for the replay."""
    three = trained(tmp_path / "3", lambda x: 1e3 * (x + 1), 3, merge)
    trained(tmp_path / "2", lambda x: x, 2, merge)
    assert len(three) == 3
    found, expected = records(tmp_path / "3"), records(tmp_path / "2")
    assert anchors(found) == anchors(expected)
    assert all([c["island"] for c in x["left_out"]] == ["i2"] for x in found[1:])
    said = capfd.readouterr().err
    assert said.count("i2.000001 is left out: its move is") == 1
    assert said.count("has left out what this island contributed") == 1
    done = list(replay(open_store(f"folder:{tmp_path / '3'}")))
    assert [merge.is_equal for merge in done] == [True] * 8


@pytest.mark.parametrize(
    ("wrong", "tokens", "quorum", "said"),
    [("sign flip", 8e6, 3, "3 has capped tokens"), ("NaN", 8, 1, "3 has left all out")],
)
def test_what_no_table_says_is_not_emulated(wrong, tokens, quorum, said):
    world = World(QUORUM._replace(quorum=quorum))
    if quorum == 3:
        rounds(world, IN[wrong], tokens)
    else:
        one = world.process("a")
        for salt in range(4):
            one.adopt()
            one.offer(8, 2, salt, wrong=OUT[wrong] if salt > 1 else same)
            assert one.turn() or one.turn()
    with pytest.raises(ValueError, match=f"merge {said}"):
        tables(world.store, log.newest(world.store))


@pytest.mark.parametrize("name", ["limit", "cap"])
def test_bounds_are_numbers_from_one_on(tmp_path, name):
    where = f"folder:{tmp_path}"
    how: dict[str, Any] = RUN | FAST
    for value in (0.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"{name}={value} must be 1 or more times"):
            islands.join(PARAMS, where, "a", **{**how, name: value})
    islands.join(PARAMS, where, "a", **{**how, name: None}).close()
    with pytest.raises(ValueError, match=f"{name} is [0-9.]+ here and None there"):
        islands.join(PARAMS, where, "a", **how)

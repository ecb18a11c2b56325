"""Steps of islands, run again from the log: one island at a time, or all together."""

import itertools
import json
import sys
from collections import Counter
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from typer.testing import CliRunner

from relaxjax.cli._app import app
from relaxjax.islands import Folder, Program, emulate
from relaxjax.islands.common import _log as log
from relaxjax.islands.common._files import seal
from relaxjax.islands.one import _past as _again
from relaxjax.islands.one._island import seed_of
from relaxjax.islands.one._pace import Pace
from relaxjax.islands.replayed import _emulate, _tables
from relaxjax.islands.replayed._rerun import rerun
from tests.islands.one import test_island
from tests.islands.one.test_island import PARAMS, RATE, TARGETS, H, live, together

TOKENS = [8, 2, 5]
STEPS = 6 * H


FORMS = {
    "rounds": {"mode": "rounds"},
    "decoupled": {"mode": "decoupled"},
    "codes": {"mode": "decoupled", "compressor": "quantize8+ef14"},
    "table": {"mode": "rounds", "sync_every": [(0, H), (2 * H, 2 * H)]},
}


@pytest.fixture(scope="module", params=FORMS)
def kept(request, tmp_path_factory) -> Any:
    """Two islands in threads, which leave; then they come back with a third one."""
    folder = tmp_path_factory.mktemp(request.param)
    how = {**FORMS[request.param], "quorum": 2, "grace": 0.01, "keep": True}
    how["cap"] = None  # the tokens differ, and no emulation has a cap
    together(folder, STEPS // 2, TOKENS, islands=2, **how)
    together(folder, STEPS, TOKENS, **how)
    return folder, how


def again(kept: Any, tmp_path: Any, monkeypatch: Any) -> list[_again.Compared]:
    """The islands' steps, one after the other in this thread."""
    folder, how = kept
    result = tmp_path / "result"
    monkeypatch.setenv(_again.RESULT, str(result))
    for stay in _again.stays(Folder(folder)):
        monkeypatch.setenv(_again.MEMBER, str(stay.member))
        with suppress(SystemExit):  # or the loop's own end, with the last contribution
            live(folder, int(stay.member.name[-1]), STEPS, TOKENS, {}, **how)
    return list(_again.read(result))


def contributions(folder: Any) -> int:
    store = Folder(folder)
    lines = [log.read(store, v)[0] for v in range(1, log.newest(store) + 1)]
    return sum(len(line["contributions"]) for line in lines)


@pytest.mark.few(4)
@pytest.mark.long
def test_own_steps_give_the_contributions_to_the_bit(kept, tmp_path, monkeypatch):
    found = again(kept, tmp_path, monkeypatch)
    assert len(found) == contributions(kept[0]) >= 2 * STEPS // (H // 2)
    assert [f for f in found if f.fault or f.difference or not f.is_equal] == []


@pytest.mark.few(4)
@pytest.mark.long
def test_other_steps_are_found(kept, tmp_path, monkeypatch):
    def train(params, target):
        after = first(params, target)
        return jax.tree.map(lambda x: x * 1.001, after)

    first = test_island.train
    monkeypatch.setattr(test_island, "train", train)
    found = again(kept, tmp_path, monkeypatch)
    assert min(f.difference for f in found) > 1e-5
    assert not any(f.is_equal for f in found)


@pytest.mark.long
def test_a_fault_that_passes_is_mended_and_replayed(tmp_path, monkeypatch):
    """Who was left out takes the whole common model over, all fragments at once."""
    taken = Counter[float]()

    def train(params, target):
        after = first(params, target)
        who = float(target[0])
        taken[who] += 1
        breaks = who == TARGETS[2][0] and taken[who] == 2 * H + 1
        return jax.tree.map(lambda x: x * jnp.nan, after) if breaks else after

    first, folder = test_island.train, tmp_path / "run"
    monkeypatch.setattr(test_island, "train", train)
    how: dict[str, Any] = {**FORMS["decoupled"], "quorum": 3, "keep": True}
    how |= {"grace": 0.01, "cap": None}
    found = together(folder, STEPS, TOKENS, **how)
    lines = [log.read(Folder(folder), v)[0] for v in range(1, 10)]
    assert [c["island"] for x in lines for c in x["left_out"]][:1] == ["island2"]
    params, _ = found["island2"]
    assert all(np.isfinite(x).all() for x in params.values())
    taken.clear()
    compared = again((folder, how), tmp_path, monkeypatch)
    assert len(compared) == contributions(folder)
    assert all(one.is_equal for one in compared)
    with pytest.raises(ValueError, match=r"left .*out.*own"):
        _tables.tables(Folder(folder), log.newest(Folder(folder)))


def as_program() -> Program:
    """What `live` trains; a process's seed says which target is its own."""
    members = [(i, f"island{i}.{k:06d}") for i in range(3) for k in (1, 2)]
    targets = {seed_of(0, member): TARGETS[i] for i, member in members}

    def loss(params, target):
        goal = {"a": target[:8], "b": target[8:]}
        return sum(jnp.sum((params[k] - goal[k]) ** 2) / 2 for k in goal)

    def batches(seed):
        return itertools.repeat(targets[seed])

    return Program(loss, optax.sgd(RATE), PARAMS, batches)


def plain(kept: Any) -> Folder:
    """A run without codes, of which alone there is an emulation."""
    store = Folder(kept[0])
    if "compressor" in kept[1]:
        with pytest.raises(ValueError, match=r"travelled as quantize8\+ef14.* replay"):
            next(emulate(store, as_program()))
        pytest.skip("refused")
    return store


@pytest.mark.few(4)
@pytest.mark.long
def test_all_islands_are_emulated_in_one_program(kept):
    """Whatever their order was, and from processes that come and go."""
    store = plain(kept)
    found = list(emulate(store, as_program()))
    assert [merge.version for merge in found] == list(range(1, log.newest(store) + 1))
    for merge in found:
        assert merge.difference < 1e-5 * merge.scale


@pytest.mark.few(4)
@pytest.mark.long
def test_an_emulation_of_other_presence_is_another(kept, monkeypatch):
    def shifted(store, merges):
        found = tables(store, merges)
        return found._replace(present=found.present[:, ::-1])

    tables = _emulate.tables
    monkeypatch.setattr(_emulate, "tables", shifted)
    store = plain(kept)
    found = list(emulate(store, as_program(), 4))
    assert max(merge.difference for merge in found) > 1e-3


def test_tokens_that_change_from_step_to_step_are_refused(kept):
    stay = _again.stays(Folder(kept[0]))[0]
    one = next(iter(stay.contributed.values()))
    uneven = stay.contributed | {99: one | {"tokens": one["tokens"] + 1}}
    with pytest.raises(ValueError, match=r"island0\.000001 has taken in 8 to 8\."):
        _tables._rate(stay._replace(contributed=uneven))


def test_a_member_that_is_not_in_the_log(kept, monkeypatch):
    monkeypatch.setenv(_again.MEMBER, "nobody.000001")
    with pytest.raises(ValueError, match=r"island0\.000001, island0\.000002"):
        live(kept[0], 0, STEPS, TOKENS, {}, **kept[1])


def test_a_program_that_fails_is_named(kept):
    store = Folder(kept[0])
    command = [sys.executable, "-c", "raise SystemExit('no such data')"]
    first = next(iter(rerun(store, command)))
    assert first.fault == "the program ended with status 1 without it: no such data"
    assert first.member == "island0.000001"


def test_a_line_that_was_changed_is_named_first(kept, tmp_path):
    folder, _ = kept
    store = Folder(folder)
    whole = store.read(log.file_of(3))
    line = json.loads(whole)
    del line["digest"], line["format"]
    line["contributions"][0]["adopted"] = []
    line["contributions"][0]["step"] += 1
    store.replace(log.file_of(3), seal(line))
    script = tmp_path / "train.py"
    script.write_text("")
    ended = CliRunner().invoke(app, ["islands", "replay", str(folder), str(script)])
    store.replace(log.file_of(3), whole)
    assert ended.exit_code == 1
    assert "log/00000003" in ended.output
    assert "the program ended" not in ended.output  # nor was it begun


def test_a_pace_does_not_make_up_for_a_pause():
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 9))
        now[0] += seconds

    pace = Pace(2.0, clock=lambda: now[0], sleep=sleep)
    pace.keep()
    now[0] += 0.3
    pace.keep()
    assert (now, slept) == ([1.0], [0.5, 0.2])
    now[0] += 0.75  # late by half a step, which is made up for
    pace.keep()
    pace.keep()
    assert now == [2.0]
    now[0] += 60.0
    pace.keep()
    pace.keep()
    assert now == [62.0]
    pace.keep()
    assert now == [62.5]
    for wrong in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="steps per second"):
            Pace(wrong)

"""The door for foreign files, and words that are said once for each cause."""

import errno
import os
import shutil
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import islands
from relaxjax.islands import DamagedFile
from relaxjax.islands.carriers import _foreign as foreign
from relaxjax.islands.carriers._folder import Folder
from relaxjax.islands.carriers._remembered import Recorded, Remembered
from relaxjax.islands.common import _log as log
from relaxjax.islands.common import _members as members
from relaxjax.islands.common._files import pack, seal, unpack, unseal
from relaxjax.islands.common._members import Member, Watch
from relaxjax.islands.common._offers import folder_of
from relaxjax.islands.common._syncer import newest_lease
from relaxjax.islands.one._mail_thread import Voice
from relaxjax.islands.replayed._replay import replay
from tests.islands.common.test_files import merged_once, round_of
from tests.islands.one.test_island import FAST, RUN
from tests.islands.world import SETTINGS, World

TWO = {"x": jnp.zeros(4), "y": jnp.zeros(4)}


def folder(path) -> None:
    path.mkdir()


def link(path) -> None:
    path.with_suffix(".other").write_text("1")
    path.symlink_to(path.with_suffix(".other"))


def loop(path) -> None:
    path.symlink_to(path.name)


def large(path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("is_remembered", [False, True])
@pytest.mark.parametrize("make", [folder, link, loop, os.mkfifo, large])
def test_what_is_no_file_is_not_read(tmp_path, make, is_remembered):
    make(tmp_path / "x")
    store = Folder(tmp_path)
    seen = Remembered(Recorded(store)) if is_remembered else store
    with pytest.raises(DamagedFile, match="x is damaged or foreign"):
        foreign.contents(seen, "x", foreign.SMALL)
    with pytest.raises(FileNotFoundError):
        foreign.contents(seen, "y", foreign.SMALL)
    (tmp_path / "z").write_bytes(b"12")
    assert foreign.contents(seen, "z", 2) == b"12"
    (tmp_path / "more").write_bytes(b"12")
    with pytest.raises(DamagedFile, match="it has 2 bytes, and at most 1 here"):
        foreign.contents(seen, "more", 1)


def test_a_carrier_that_fails_is_not_a_damaged_file(tmp_path, monkeypatch):
    def fails(name, most):
        raise OSError(errno.EIO, "Input/output error", name)

    store = Folder(tmp_path)
    monkeypatch.setattr(store, "read", fails)
    with pytest.raises(OSError, match="Input/output error"):
        foreign.contents(store, "x", 1)


@pytest.mark.parametrize(
    "text",
    [b"[" * 10**5, b'{"a":' * 10**5, b"NaN", b"-Infinity", b"1" * 5000, b"\xff", b""],
)
def test_json_that_no_run_writes(text):
    with pytest.raises(DamagedFile, match="x is damaged or foreign: it is"):
        foreign.parsed("x", text)
    with pytest.raises(DamagedFile):
        unseal("x", text)


def test_json_is_of_at_most_a_hundred_levels():
    assert foreign.parsed("x", b"[" * 100 + b"]" * 100)
    with pytest.raises(DamagedFile, match="more than 100 levels"):
        foreign.parsed("x", b"[" * 101 + b"]" * 101)


def test_brackets_in_words_have_no_depth():
    text = b'{"a": "%s\\""}' % (b"[" * 200)
    assert foreign.parsed("x", text) == {"a": "[" * 200 + '"'}


@pytest.mark.parametrize(
    "value", [10**400, 2**53 + 1, -1, 1e300, True, "1", None, [1], float("inf")]
)
def test_numbers_are_plain_ones(value):
    with pytest.raises(DamagedFile, match="n is "):
        foreign.require("x", {"n": value}, {"n": (int, float)})
    for fine in (0, 1.5, 2**53):
        foreign.require("x", {"n": fine}, {"n": (int, float)})


def test_names_are_numbers_in_ascii():
    zero, one = "\u0660", "\u0661"  # of Arabic script
    names = ["00000042", zero * 7 + one, "\xb2", "42", "000000042", "9" * 200]
    assert foreign.numbered([*names, "-0000001"]) == {42: "00000042"}
    assert Member.parse(f"a.{zero * 5}{one}") is None
    assert Member.parse("a.000001") == ("a", 1)


def test_no_name_reaches_a_terminal_as_it_is():
    said = []
    voice = Voice("a", said.append)
    voice.say("log/\x1b[2J\n\udc80 is no file of a run")
    assert said == [r"islands: [a] log/\x1b[2J\n\udc80 is no file of a run"]
    assert str(DamagedFile("a\x07", "b\r")) == r"a\x07 is damaged or foreign: b\r"
    assert foreign.shown("x" * 1000) == "'" + "x" * 399 + "..."


@pytest.mark.few(25)
@pytest.mark.parametrize("key", ["tokens", "steps", "base", "joined", "dropped"])
@pytest.mark.parametrize("value", [10**400, -1, 1e300, "8", True])
def test_a_contribution_with_a_number_that_is_none_is_refused(key, value):
    """By name; the leader goes on, and so does the round."""
    world = World()
    processes = merged_once(world)
    for p in processes:
        p.adopt()
        p.offer(8, 2, 1)
    name = f"{folder_of(2)}/c.000001"
    meta, arrays = unpack(name, world.store.files[name])
    world.store.files[name] = pack({**meta, key: value}, arrays)
    for _ in range(2):
        world.now += 2
        processes[0].turn()
    record, _ = log.read(world.store, 2)
    assert [c["island"] for c in record["contributions"]] == ["a", "b"]
    assert f"{key} is " in dict(record["refused"])[name]
    world.check()


def test_tokens_are_refused_where_they_are_given(tmp_path):
    how: dict[str, Any] = RUN | FAST
    with islands.join(TWO, f"folder:{tmp_path}", "a", **how) as island:
        wrong: Any = (
            1e20,
            10**400,
            -1,
            float("nan"),
            1e-25,
            5e-324,
            2.0**-54,
            np.ones(2),
        )
        for tokens in wrong:
            with pytest.raises(ValueError, match="must be 0 or from 2"):
                island.exchange(island.params, tokens=tokens)
        right: Any = (0.5, 0, 2**-53, np.float32(0.5), jnp.int32(3), np.array(2))
        for tokens in right:
            island.exchange(island.params, tokens=tokens)


def test_numbers_of_numpy_are_taken(tmp_path):
    how: dict[str, Any] = RUN | FAST
    whole: dict[str, Any] = {k: np.int64(v) for k, v in how.items() if type(v) is int}
    wide = {k: np.float32(v) for k, v in how.items() if type(v) is float}
    whole["sync_every"] = [(np.int64(0), np.int64(RUN["sync_every"]))]
    for name in ("a", "b"):  # the second one reads what the first one wrote
        carrier = f"folder:{tmp_path}"
        with islands.join(TWO, carrier, name, **{**how, **whole, **wide}) as island:
            island.exchange(island.params, tokens=np.float64(2))


@pytest.mark.parametrize("quorum", [2, 3])
@pytest.mark.parametrize("tokens", [1e-25, 1e-19, 5e-324])
def test_a_weight_of_zero_is_refused(tokens, quorum):
    """The leader names it, and the others' merge moves the model."""
    world = World(SETTINGS._replace(quorum=quorum))
    processes = merged_once(world)
    for p in processes:
        p.adopt()
        p.offer(tokens if p is processes[2] else 8, 2, 1)
    for p in processes * 2:
        world.now += 1
        p.turn()
    record, _ = log.read(world.store, 2)
    assert [c["island"] for c in record["contributions"]] == ["a", "b"]
    refused = dict(record["refused"])[f"{folder_of(2)}/c.000001"]
    assert "it has" in refused
    assert "whose weight in float32 is 0" in refused


@pytest.mark.parametrize("tokens", [2.0**-53, 3e-16, 1e9, 2.0**53])
def test_the_smallest_and_the_largest_tokens_move_the_model(tokens):
    """With their steps; and the line of the log can be read."""
    world = World(SETTINGS._replace(quorum=1, keep=True))
    one = world.process("a")
    for salt in range(3):
        one.adopt()
        one.offer(tokens * 2, 2, salt) if tokens < 2**52 else one.offer(tokens, 2, salt)
        assert one.turn() or one.turn()
        world.check()
    one.adopt()
    assert all(abs(x).min() > 0 for f in one.has.values() for x in f.anchor.values())
    assert all(merge.is_equal and not merge.fault for merge in replay(world.store))


def attacked() -> World:
    """A run of four, the last of whom was left out of the first merge."""
    world = World()
    processes = [world.process(name) for name in "abcd"]
    for p in processes:
        p.adopt()
        p.offer(8, 2, 0, wrong=lambda x, far=p is processes[3]: x + 1e6 * far)
    world.now += 2
    for p in processes * 2:
        p.turn()
    return world


TAKEN = {"island", "incarnation", "weight", "file"}
ALWAYS = {
    "contributions": TAKEN | {"base", "tokens", "steps", "sha256", "adopted", "joined"},
    "left_out": TAKEN | {"cause", "why"},
}


@pytest.mark.parametrize(
    ("part", "key"), [(p, k) for p in ALWAYS for k in sorted(ALWAYS[p])]
)
def test_a_line_without_what_readers_take_from_it_is_damaged(part, key):
    store = attacked().store
    line, _ = log.read(store, 1)
    del line[part][0][key]
    store.files[log.file_of(1)] = seal(line)
    with pytest.raises(DamagedFile, match=key):
        log.read(store, 1)


def test_a_foreign_number_in_the_log_is_no_version():
    """Who joins does not read backwards from it, and goes on from the newest line."""
    world = World()
    processes = merged_once(world)
    for name in ("20261127", "00000009", "notes"):
        world.store.files[f"log/{name}"] = b"notes"
    reads = []
    world.store.before = lambda verb, name: reads.append(name)
    assert log.newest(world.store) == 1
    late = world.process("d")
    assert late.version == 1
    assert len(reads) < 100
    said = [words for words in late.said if "no file of a run" in words]
    assert len(said) == 3
    for salt in (1, 2):
        round_of([*processes, late], salt)
    assert log.newest(world.store) >= 2
    assert log.newest(world.store, 1) == log.newest(world.store)


@pytest.mark.few(20)
@pytest.mark.parametrize("what", [b"notes", b""])
@pytest.mark.parametrize("quorum", [1, 3])
@pytest.mark.parametrize("ahead", [(1,), (2,), (6,), (2, 4), (3, 4, 5, 6)])
def test_a_foreign_number_ahead_is_passed_over_by_everybody(ahead, quorum, what):
    """Fragments go on from their newest merge, and so does who joins later."""
    world = World(SETTINGS._replace(quorum=quorum))
    processes = merged_once(world)
    put = log.newest(world.store)
    world.foreign = {put + k for k in ahead}
    for version in world.foreign:
        world.store.files[log.file_of(version)] = what
    for salt in range(1, 30):
        round_of(processes, salt)
        world.now += 1
        if salt == 12:
            assert log.newest(world.store) >= put + 10
            processes.append(world.process("d"))
    world.check()
    assert log.newest(world.store) >= put + 20
    line, _ = log.read(world.store, log.newest(world.store))
    assert [c["island"] for c in line["contributions"]] == list("abcd")
    assert processes[3].has[0].version == processes[0].has[0].version > put + 10


def test_a_state_that_nobody_has_read_is_passed_over():
    """Its leader is gone; the others go on from the merge before it."""
    world = World()
    leader, *others = processes = merged_once(world)
    round_of(processes, 1)
    version = log.newest(world.store) + 1
    for p in processes:
        p.adopt()
        p.offer(8, 2, 2)
    while not leader.turn():
        world.now += 1
    assert log.newest(world.store) == version
    for name in [x for x in world.store.files if x.startswith(f"state/{version:08d}")]:
        world.store.files[name] = b"x"
    world.now += 100
    for salt in range(3, 20):
        round_of(others, salt)
        world.now += 2
    assert log.newest(world.store) > version + 4
    line, _ = log.read(world.store, version + 2)
    assert {c["base"] for c in line["contributions"]} == {version - 2}


def test_an_island_goes_on_behind_what_is_no_file(tmp_path):
    """By itself, with its thread: a file, a link and a folder stand in its way."""
    how: dict[str, Any] = RUN | FAST
    where = tmp_path / "r"
    with islands.join(TWO, f"folder:{where}", "a", **how) as island:
        for ahead, make in ((2, link), (3, folder), (7, os.mkfifo)):
            make(where / log.FOLDER / f"{ahead:08d}")
        params = island.params
        for _ in range(200):
            params = island.exchange(params, tokens=8)
            if island.version >= 9:
                break
        assert island.version >= 9


@pytest.mark.parametrize("value", [-1.0, "8", None, 8])
@pytest.mark.parametrize("key", ["length", "weight", "members"])
def test_a_line_whose_measures_are_none_is_damaged(key, value):
    """A leader that looks back at it goes on without it."""
    world = World()
    processes = merged_once(world)
    record, _ = log.read(world.store, 1)
    if key == "members":
        record["bounds"]["members"] = {"a": [1, 1.0, value]}
    else:
        record["contributions"][0][key] = value
    world.store.files[log.file_of(1)] = seal(record)
    with pytest.raises(DamagedFile, match="is no number"):
        log.read(world.store, 1)
    late = world.process("d")
    for salt in range(1, 6):
        round_of([*processes, late], salt)
        world.now += 2
    assert log.newest(world.store) >= 3


def test_a_damaged_newest_line_is_a_version():
    world = World()
    merged_once(world)
    world.store.files[log.file_of(2)] = b"{}"
    assert log.newest(world.store) == log.newest(world.store, 0) == 2
    assert log.newest(World().store) == -1


def test_a_foreign_lease_is_passed_over():
    world = World()
    processes = merged_once(world)
    world.store.files["lease/99999999"] = world.store.files["lease/00000002"] = b"x"
    del world.store.files["lease/00000002"]
    said: list[str] = []
    assert newest_lease(world.store, said.append) == (1, processes[0].member)
    assert "99999999 is damaged or foreign" in said[0]
    world.store.files["lease/00000002"] = b"x"
    assert newest_lease(world.store, said.append) == (2, None)
    world.now += 100
    for salt in (1, 2):
        round_of(processes, salt)
    assert log.newest(world.store) >= 2
    assert "00000003" in world.store.names("lease")


def test_a_foreign_member_supersedes_nobody():
    world = World()
    one = world.process("a")
    world.store.files["members/a.000009"] = b"x"
    world.store.files["members/a.000010"] = world.store.files["members/a.000001"]
    world.store.files["members/a.000011.beat"] = b"1"
    one.adopt()
    one.adopt()
    said = [words for words in one.said if "damaged or foreign" in words]
    assert len(said) == 2
    assert any("the file of another member" in words for words in said)
    assert members.newest(world.store) == {"a": 1}
    assert world.process("a").member == ("a", 12)


def test_members_of_older_versions_have_joined():
    world = World()
    world.store.files["members/a.000001"] = seal({"host": "x", "pid": 1})
    watch = Watch(world.store, 1.0)
    watch.look()
    assert watch.newest() == {"a": 1}


def test_a_cause_is_said_once_whatever_the_name(tmp_path):
    """Until it is mended; then it is news again."""
    how: dict[str, Any] = RUN | FAST
    with islands.join(TWO, f"folder:{tmp_path}/r", "a", **how) as island:
        post: Any = island._mail
        post._stop = True  # the test speaks for the thread
        post._thread.join()
        said: list[str] = []
        post._voice._write = said.append
        for i in range(5):
            post._fails(OSError(errno.EROFS, "Read-only file system", f"/r/tmp/{i}"))
        assert len(said) == 1
        assert "/r/tmp/0: Read-only file system; training goes on" in said[0]
        post._fails(OSError(errno.EROFS, "Read-only file system", "/r/log/1"))
        assert len(said) == 2
        post._recovered()
        post._fails(OSError(errno.EROFS, "Read-only file system", "/r/tmp/9"))
        assert "the carrier works again" in said[2]
        assert "/r/tmp/9: Read-only" in said[3]


def test_a_folder_for_temporary_files_is_made_again(tmp_path):
    store = Folder(tmp_path / "r")
    shutil.rmtree(tmp_path / "r" / "tmp")
    assert store.create("x", b"1")
    shutil.rmtree(tmp_path / "r" / "tmp")
    store.replace("x", b"2")
    assert store.read("x") == b"2"

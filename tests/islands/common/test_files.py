"""Files that are truncated, changed or foreign, and folders that break promises."""

import threading

import ml_dtypes
import numpy as np
import pytest

from relaxjax.islands import DamagedFile
from relaxjax.islands.carriers import _store as stores
from relaxjax.islands.carriers._folder import Folder
from relaxjax.islands.common import _files as files
from relaxjax.islands.common import _log as log
from relaxjax.islands.common._members import Member
from tests.islands.world import Memory, World

ARRAYS = {
    "a": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.ones((), np.float64),
    "c": np.ones((3, 0), np.float32),
    "d": np.ones(5, ml_dtypes.bfloat16),
}


def test_arrays_come_back_as_they_were():
    meta, arrays = files.unpack("x", files.pack({"n": 3}, ARRAYS))
    assert meta == {"n": 3}
    assert list(arrays) == list(ARRAYS)
    for name, x in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (x.dtype, x.shape)
        np.testing.assert_array_equal(arrays[name], x)


@pytest.mark.parametrize("kind", ["arrays", "record"])
def test_every_changed_or_missing_byte_is_found(kind):
    whole = files.pack({"n": 3}, ARRAYS) if kind == "arrays" else files.seal({"n": 3})
    read = files.unpack if kind == "arrays" else files.unseal
    last = len(whole) - (kind == "record")  # a newline is no part of a record
    for i in range(last):
        for bad in (whole[:i], whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :]):
            with pytest.raises(DamagedFile, match="place/x is damaged or foreign"):
                read("place/x", bad)
    for foreign in (b"", b"\0" * 50, b"[1]\n", b"\x80\x04]", whole + b"x"):
        with pytest.raises(DamagedFile):
            read("place/x", foreign)


@pytest.mark.parametrize(
    "listed",
    ["[]", '[["a","O",[1]]]', '[["a","float32",[-1]]]', '[["a","f4",[9]]]', "3"],
)
def test_lists_of_arrays_that_are_not_lists(listed):
    rest = f'{{"arrays":{listed}}}\n'.encode() + bytes(8)
    digest = files.sha256(rest)
    data = f"relaxjax-islands 1 {digest} {len(rest)}\n".encode() + rest
    with pytest.raises(DamagedFile, match="list of arrays"):
        files.unpack("x", data)


def test_another_format_is_named():
    data = files.pack({}, ARRAYS).replace(b"islands 1", b"islands 2", 1)
    with pytest.raises(DamagedFile, match="format is 2, and this relaxjax reads 1"):
        files.unpack("x", data)


def test_a_folder_creates_once_whoever_is_first(tmp_path):
    store = Folder(tmp_path)
    won = []
    start = threading.Barrier(8)

    def run(i: int) -> None:
        start.wait()
        if store.create("log/00000001", b"%d" % i):
            won.append(i)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(won) == 1
    assert store.read("log/00000001") == b"%d" % won[0]
    assert store.names("tmp") == []
    stores.probe(store, "me")
    assert store.names("probe") == []


def test_a_file_system_where_both_win_is_refused(tmp_path):
    store = Folder(tmp_path)
    store.create = lambda name, data: store.replace(name, data) or True
    with pytest.raises(ValueError, match="exactly one must win"):
        stores.probe(store, "me")


def test_a_lost_answer_of_the_file_system_is_a_win(tmp_path, monkeypatch):
    import os

    store, link = Folder(tmp_path), os.link

    def lost(source, target):
        link(source, target)
        raise FileExistsError

    monkeypatch.setattr(os, "link", lost)
    assert store.create("x", b"mine")
    assert not store.create("x", b"other")


def test_a_folder_without_links_or_rights_is_refused(tmp_path, monkeypatch):
    import errno
    import os

    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="cannot write to the folder"):
        Folder(tmp_path / "file" / "x")

    def none(source, target):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    with pytest.raises(ValueError, match="no hard links"):
        Folder(tmp_path).create("x", b"")


def merged_once(world: World) -> list:
    """Three processes, the first of which leads, after one merge."""
    processes = [world.process(name) for name in "abc"]
    round_of(processes)
    world.check()
    assert world.checked == 1
    return processes


def written(world: World, end: str) -> str:
    """The file of merge 1 with this end."""
    names = [n for n in world.store.files if n.startswith("state/00000001.")]
    return next(n for n in names if n.endswith(end))


def round_of(processes: list, salt: int = 0) -> None:
    for p in processes:
        p.adopt()
        p.offer(8, 2, salt)
    for p in processes * 2:
        p.turn()


def test_damaged_contributions_are_named_and_the_others_merge():
    world = World()
    processes = merged_once(world)
    for p in processes:
        p.adopt()
        p.offer(8, 2, 1)
    folder = "offers/00000002"
    bad = f"{folder}/c.000001"
    world.store.files[bad] = world.store.files[bad][:-3]
    world.store.files[f"{folder}/notes.txt"] = b"hello"
    world.store.files[f"{folder}/d.000001"] = world.store.files[f"{folder}/a.000001"]
    world.now += 2
    for _ in range(2):
        for p in processes:
            p.turn()
        world.now += 2
    record, _ = log.read(world.store, 2)
    assert [c["island"] for c in record["contributions"]] == ["a", "b"]
    refused = dict(record["refused"])
    assert "bytes instead of" in refused[bad]
    assert "name is not that" in refused[f"{folder}/notes.txt"]
    assert "by another island" in refused[f"{folder}/d.000001"]
    said = [words for p in processes for words in p.said]
    assert sum(f"memory/{bad} is refused" in words for words in said) == 1


@pytest.mark.parametrize("kind", ["anchor", "outer"])
def test_a_damaged_state_is_named_and_the_run_goes_on(kind):
    world = World()
    processes = merged_once(world)
    name = written(world, f"f0.{kind}")
    world.store.files[name] = b"garbage"
    leader = processes[0].channel.syncer.lease is not None
    assert leader
    newcomer = world.process("d")
    if kind == "anchor":
        assert any(f"{name} is damaged" in words for words in newcomer.said)
        assert newcomer.has[0].version == 0
    for salt in range(1, 6):
        round_of([*processes, newcomer], salt)
        world.now += 5
    world.check()
    assert world.checked >= 3
    newcomer.adopt()
    assert newcomer.has[0].version >= 3
    if kind == "anchor":
        assert any("it is written again" in words for words in processes[0].said)


def test_a_new_leader_without_momentum_says_so_in_the_log():
    world = World()
    first, *others = merged_once(world)
    name = written(world, "f0.outer")
    world.store.files[name] = world.store.files[name][:-1]
    world.now += 100
    for salt in (1, 2):
        for p in others:
            p.adopt()
            p.offer(8, 2, salt)
        for p in others * 3:
            p.turn()
            world.now += 2
            p.adopt()
    record, _ = log.read(world.store, 3)
    assert record["leader"] != str(first.member)
    assert name in record["reset"]
    assert any(
        "momentum of fragment 0 begins anew" in w for p in others for w in p.said
    )


def test_a_foreign_line_in_the_log_is_named_and_the_run_goes_on():
    world = World()
    processes = merged_once(world)
    world.store.files[log.file_of(2)] = b"{}"
    for salt in (1, 2):
        round_of(processes, salt)
    assert log.newest(world.store) >= 3
    for p in processes:
        assert any("log/00000002 is damaged or foreign" in words for words in p.said)


def test_who_cannot_read_the_newest_version_hands_the_lease_over():
    """A newcomer leads, whose copy of the model is old; the line is written again."""
    world = World()
    processes = merged_once(world)
    for salt in (1, 2):
        round_of(processes, salt)
    assert log.newest(world.store) == 3
    world.check()
    world.store.files[log.file_of(3)] = b"{}"
    late = world.process("d")
    assert late.has[0].version == 1
    for _ in range(2):
        late.adopt()
        world.now += 100
    late.turn()
    assert late.channel.syncer.lease == 2
    for salt in range(3, 9):
        round_of([*processes, late], salt)
        world.now += 3
    assert log.newest(world.store) >= 5
    world.check()
    assert any("can read a newer version, and takes the lease" in w for w in late.said)
    for p in (late, processes[0]):
        p.adopt()
    assert late.has[0].version == processes[0].has[0].version >= 5


def test_a_frozen_leader_wakes_up_without_a_wrong_merge():
    world = World()
    leader, *others = merged_once(world)
    world.now += 100  # its heartbeat stands still
    for salt in range(1, 4):
        for p in others:
            p.adopt()
            p.offer(8, 2, salt)
        for p in others * 2:
            p.turn()
        world.now += 2
    for p in others * 2:
        p.adopt()
        p.turn()
    assert log.newest(world.store) >= 2
    leader.turn()
    assert leader.channel.syncer.lease is None
    assert not leader.offer(8, 2, 9) or leader.version + 1 > log.newest(world.store)
    leader.adopt()
    world.check()


def test_members_files_that_are_not_theirs_are_named():
    world = World()
    one = world.process("a")
    world.store.files["members/readme.txt"] = b""
    one.adopt()
    one.adopt()
    assert [w for w in one.said if "members/readme.txt is no file of a run" in w]
    assert Member.parse("a.000001") == ("a", 1)
    assert Member.parse("a.000001.beat") is None
    for text in ("a.0000001", "a.1", "a.00001"):
        assert Member.parse(text) is None
    for member in (Member("a", 999_999), Member("a", 1_000_000)):
        assert Member.parse(str(member)) == member


def test_a_member_has_one_name():
    """A contribution that is copied to another way to write its number counts once."""
    world = World()
    processes = merged_once(world)
    for p in processes:
        p.adopt()
        p.offer(8, 2, 1)
    files = world.store.files
    files["offers/00000002/a.0000001"] = files["offers/00000002/a.000001"]
    files["members/a.0000001"] = files["members/a.000001"]
    world.now += 2
    processes[0].turn()
    world.check()
    record, _ = log.read(world.store, 2)
    assert [c["island"] for c in record["contributions"]] == ["a", "b", "c"]
    refused = dict(record["refused"])
    assert "name is not that" in refused["offers/00000002/a.0000001"]
    processes[0].adopt()
    said = [w for w in processes[0].said if "a.0000001 is no file of a run" in w]
    assert len(said) == 1


def test_what_is_not_finite_is_refused_by_name():
    world = World()
    processes = merged_once(world)
    for p in processes:
        p.adopt()
    fragment = processes[2].has[1]
    bad = {k: np.full_like(a, np.nan) for k, a in fragment.anchor.items()}
    processes[2].has[1] = fragment._replace(anchor=bad)
    for p in processes:
        p.offer(8, 2, 5)
    world.now += 2
    for _ in range(2):
        for p in processes:
            p.turn()
        world.now += 2
    record, _ = log.read(world.store, 2)
    assert [c["island"] for c in record["contributions"]] == ["a", "b"]
    assert "is not finite" in dict(record["refused"])["offers/00000002/c.000001"]


def test_a_store_in_memory_is_a_store():
    stores.probe(Memory(), "me")

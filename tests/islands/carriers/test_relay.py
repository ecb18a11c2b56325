"""A store by another process: the same answers and errors, and nothing is unpickled."""

import errno
import json
import os
import pickle
import sys
import threading
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

import pytest

from relaxjax.islands import Folder, open_store
from relaxjax.islands.carriers import _store as stores
from relaxjax.islands.carriers._open import CARRIER
from relaxjax.islands.carriers._relay import RELAY, RelayedStore, relayed
from relaxjax.islands.carriers._remembered import Recorded, Remembered
from relaxjax.islands.started import _ray_islands as ray_islands


@pytest.fixture
def address(tmp_path):
    with relayed(Recorded(Folder(tmp_path / "run"))) as address:
        yield address


@pytest.fixture
def store(address):
    return RelayedStore(address, "ray:/run")


def test_it_is_a_store(store, tmp_path):
    stores.probe(store, "me")
    assert store.create("a/b", b"one")
    assert not store.create("a/b", b"two")
    assert (store.names("a"), store.read("a/b")) == (["b"], b"one")
    store.replace("a/b", b"\x00" * 1_000_000)
    assert (tmp_path / "run" / "a" / "b").read_bytes() == b"\x00" * 1_000_000
    assert store.names("nothing") == []
    store.replace("empty", b"")
    assert store.read("empty") == b""
    found = store.changes("", 0)
    store.delete("a/b")
    assert store.changes(found.journal, found.number).names == ["a/b"]
    with pytest.raises(FileNotFoundError) as error:
        store.read("a/b")
    assert error.value.filename == str(tmp_path / "run" / "a" / "b")
    assert store.create("a/b", b"three")  # an error ends nothing


@pytest.fixture
def hurried():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hurried")
def test_two_threads_get_their_own_answers(store):
    for name in "ab":
        store.replace(name, name.encode() * 1000)
    wrong: list[Any] = []

    def read(name: str) -> None:
        for _ in range(200):
            data = store.read(name)
            if data != name.encode() * 1000:
                wrong.append(data)

    threads = [threading.Thread(target=read, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    "said",
    [
        pickle.dumps({"verb": "read", "name": "x"}),
        b"[]",
        b"{}",
        json.dumps({"verb": "__class__", "name": "x"}).encode(),
        json.dumps({"verb": "_root", "name": "x"}).encode(),
        b"\xff\xfe",
    ],
)
def test_what_is_no_call_is_not_answered_and_others_are(address, store, said):
    with Client(address, "AF_UNIX") as connection:
        connection.send_bytes(said)
        with pytest.raises(EOFError):
            connection.recv_bytes()
    assert store.create("x", b"1")


def test_a_socket_that_nobody_answers_any_more(tmp_path):
    before = set(threading.enumerate())
    with relayed(Recorded(Folder(tmp_path))) as address:
        store = RelayedStore(address, "ray:/run")
        assert Path(address).parent.stat().st_mode & 0o77 == 0  # its owner's alone
    assert not Path(address).exists()
    store._connection.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(5)
    assert set(threading.enumerate()) <= before
    with pytest.raises(ValueError, match=f"{RELAY}=.* nobody answers"):
        RelayedStore(address, "ray:/run")
    with pytest.raises(OSError, match="actor does not answer") as error:
        store.read("x")
    assert error.value.errno == errno.EHOSTUNREACH


def test_only_the_carrier_that_the_actor_watches_is_relayed(
    address, monkeypatch, tmp_path
):
    monkeypatch.setenv(RELAY, address)
    monkeypatch.setenv(CARRIER, "ray:/run")
    store = open_store("ray:/run")
    assert isinstance(store, Remembered)
    assert store.carrier == "ray:/run"
    assert store.create("x", b"1")
    asked: list[str] = []

    def on_ray(place: str) -> Any:
        asked.append(place)
        return Recorded(Folder(tmp_path / "other"))

    monkeypatch.setattr("relaxjax.islands.carriers._open.RayStore", on_ray)
    open_store("ray:/other")
    monkeypatch.delenv(RELAY)
    open_store("ray:/run")
    assert asked == ["/other", "/run"]
    assert (tmp_path / "run" / "x").read_bytes() == b"1"


def test_an_actor_answers_for_its_island(tmp_path, monkeypatch):
    folder, seen = Recorded(Folder(tmp_path / "run")), []
    monkeypatch.setattr(ray_islands, "RayStore", {"/run": folder}.__getitem__)

    def supervise(
        command: Any, names: Any, carrier: str, env: dict[str, str], *, spares: bool
    ) -> int:
        assert spares
        store = RelayedStore(env[RELAY], carrier)
        seen.append((command, names, env["JAX_A"], store.create("x", b"1")))
        return 3

    monkeypatch.setattr(ray_islands, "supervise", supervise)
    watcher = ray_islands.Watcher()
    assert watcher.run(["train"], "one", "ray:/run", {"JAX_A": "2"}, True) == 3
    assert seen == [(["train"], ["one"], "2", True)]
    assert folder.read("x") == b"1"
    assert RELAY not in os.environ

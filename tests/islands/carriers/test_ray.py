"""A folder behind an actor: without Ray what it does, and islands on Ray itself."""

import errno
import importlib.util
import os
import re
import subprocess
import sys
import threading
from typing import Any

import pytest

from relaxjax.islands import Folder, open_store
from relaxjax.islands.carriers import _store as stores
from relaxjax.islands.carriers._open import CARRIER
from relaxjax.islands.carriers._ray_store import Keeper, RayStore
from relaxjax.islands.common import _log as log
from relaxjax.islands.common._names import NAME
from relaxjax.islands.replayed._replay import replay
from tests.islands.one.test_processes import SCRIPT

QUIET = SCRIPT.partition("        if step %")[0]  # nobody reads what it prints
HAS_RAY = importlib.util.find_spec("ray") is not None


class Errors:
    """The exceptions of Ray, as far as they are named here."""

    class RayError(Exception):
        pass

    class RayTaskError(RayError):
        pass


class InProcess:
    """What stands for Ray: calls go to the object, through what they would send."""

    exceptions = Errors

    def __init__(self, keeper: Any):
        self.keeper, self.call, self.is_gone = keeper, self, False

    def remote(self, *arguments: Any) -> Any:
        return self.keeper.call(*arguments)

    def get(self, answer: Any) -> Any:
        if self.is_gone:
            raise Errors.RayError("the actor died")
        return answer


@pytest.fixture
def store(tmp_path) -> RayStore:
    store = object.__new__(RayStore)
    store.place = f"ray:{tmp_path}"
    store._ray = store._keeper = InProcess(Keeper(str(tmp_path)))
    return store


def test_it_is_a_store(store, tmp_path):
    stores.probe(store, "me")
    assert store.create("a/b", b"one")
    assert not store.create("a/b", b"two")
    assert (store.names("a"), store.read("a/b")) == (["b"], b"one")
    store.replace("a/b", b"three")
    assert (tmp_path / "a" / "b").read_bytes() == b"three"
    found = store.changes("", 0)
    assert found.names is None
    store.delete("a/b")
    assert store.changes(found.journal, found.number).names == ["a/b"]
    with pytest.raises(FileNotFoundError) as error:
        store.read("a/b")
    assert error.value.filename == str(tmp_path / "a" / "b")


def test_an_actor_that_does_not_answer_is_an_error_of_the_carrier(store):
    store._ray.is_gone = True
    with pytest.raises(OSError, match="the actor does not answer") as error:
        store.create("a", b"")
    assert error.value.errno == errno.EHOSTUNREACH


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed")
def test_without_ray_the_extra_is_named():
    with pytest.raises(ImportError, match=r"relaxjax\[ray\]"):
        open_store("ray:runs/x")


HEAD = """
import sys
import ray
from relaxjax.islands.carriers._ray_store import RayStore
ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
print(ray.get_runtime_context().gcs_address, flush=True)
store = RayStore(sys.argv[1])
sys.stdin.readline()
ray.kill(store._keeper, no_restart=False)
sys.stdin.readline()
ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed")
def test_islands_on_ray(tmp_path):
    """Two islands; the actor is killed in between, and Ray starts it again."""
    run, tick, children = tmp_path / "run", threading.Event(), list[Any]()

    def start(script: str, *arguments: str, **env: str) -> Any:
        child = subprocess.Popen(
            [sys.executable, "-u", "-c", script, *arguments],
            env=os.environ | {"RAY_AUTH_MODE": "disabled"} | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        children.append(child)
        return child

    def until(version: int) -> None:
        while log.newest(Folder(run)) < version:
            tick.wait(0.05)
            assert all(child.poll() is None for child in children)

    head = start(HEAD, str(run))
    try:
        address = next(line for line in head.stdout if re.match(r"[\d.]+:\d+$", line))
        env = {CARRIER: f"ray:{run}", "RAY_ADDRESS": address.strip()}
        islands = [start(QUIET, **env, **{NAME: name}) for name in "ab"]
        until(4)
        print(file=head.stdin, flush=True)
        until(log.newest(Folder(run)) + 6)
        for island in islands:
            island.kill()
            island.communicate()
        head.communicate("\n")
    finally:
        for child in children:
            child.kill()
            child.communicate()
    done = list(replay(Folder(run)))
    assert len(done) >= 10
    assert all(merge.is_equal and not merge.fault for merge in done)

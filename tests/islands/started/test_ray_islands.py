"""Islands as actors: without Ray what is asked of it, and actors of Ray themselves."""

import importlib.util
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from relaxjax.islands import Folder
from relaxjax.islands.common import _log as log
from relaxjax.islands.common import _members as members
from relaxjax.islands.common._names import STARTED
from relaxjax.islands.replayed._replay import replay
from relaxjax.islands.started import _ray_islands as ray_islands
from tests.islands.carriers.test_ray import QUIET, Errors

HAS_RAY = importlib.util.find_spec("ray") is not None


class FakeRay:
    """What stands for Ray: a call has what it comes to beside it, or goes on."""

    exceptions = Errors

    def __init__(self, cpus: int, comes_to: dict[str, Any], gpus: int = 0):
        self.resources, self.comes_to = {"CPU": cpus, "GPU": gpus}, comes_to
        self.asked: list[dict[str, Any]] = []
        self.env: dict[str, str] = {}
        self.killed = self.waits = 0

    def cluster_resources(self) -> dict[str, int]:
        return self.resources

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(gcs_address="1.2.3.4:6379")

    def remote(self, kind: type) -> Any:
        assert kind is ray_islands.Watcher

        def options(**options: Any) -> Any:
            self.asked.append(options)
            run = SimpleNamespace(remote=self.call)
            return SimpleNamespace(remote=lambda: SimpleNamespace(run=run))

        return SimpleNamespace(options=options)

    def call(
        self,
        command: Any,
        name: str,
        carrier: str,
        env: dict[str, str],
        spares: bool,
    ) -> str:
        self.env, self.spares = env, spares
        return name

    def wait(self, calls: list[str], timeout: float) -> Any:
        ready = [call for call in calls if call in self.comes_to]
        if not ready:
            os.kill(os.getpid(), signal.SIGINT)
        return ready, [call for call in calls if call not in ready]

    def get(self, call: str) -> Any:
        if isinstance(self.comes_to[call], Exception):
            raise self.comes_to[call]
        return self.comes_to[call]

    def kill(self, actor: Any, no_restart: bool) -> None:
        self.killed += no_restart


@pytest.fixture
def run(tmp_path, monkeypatch) -> Callable[[FakeRay], int]:
    def run(ray: FakeRay) -> int:
        monkeypatch.setattr(ray_islands, "connected", lambda shows_output: ray)
        folder = Folder(tmp_path)
        folder.carrier = f"ray:{tmp_path}"
        monkeypatch.setattr(ray_islands, "open_store", lambda carrier: folder)
        return ray_islands.supervise_on_ray(
            ["x"], ["a", "b"], "ray:x", {"JAX_A": "1"}, spares=True
        )

    return run


def test_actors_come_back_and_lie_on_many_nodes(run, monkeypatch):
    monkeypatch.setenv("SECRET", "1")
    ray = FakeRay(2, {"a": 0, "b": 0}, gpus=2)
    assert run(ray) == 0
    first, second = ray.asked
    assert first == second
    assert first["max_restarts"] == first["max_task_retries"] == -1
    assert (first["scheduling_strategy"], first["num_gpus"]) == ("SPREAD", 1)
    assert (ray.env["RAY_ADDRESS"], ray.env["JAX_A"]) == ("1.2.3.4:6379", "1")
    assert "SECRET" not in ray.env
    assert ray.spares
    assert ray.killed == 2


def test_too_few_cpus_are_an_error_with_a_remedy(run):
    ray = FakeRay(1, {})
    with pytest.raises(ValueError, match=r"2 islands need a CPU each.* has 1.*-n 1"):
        run(ray)
    assert not ray.asked


def test_an_actor_that_failed_is_named_and_the_others_go_on(run, capsys):
    assert run(FakeRay(2, {"a": Errors.RayError("it\nbroke"), "b": 0})) == 1
    assert "a: its actor has failed: broke" in capsys.readouterr().err
    assert run(FakeRay(2, {"a": 1, "b": 0})) == 1


def test_ctrl_c_kills_the_actors_and_marks_their_islands(run, tmp_path):
    store, joined = Folder(tmp_path), list[members.Member]()

    class Joining(FakeRay):
        def call(self, command: Any, name: str, carrier: str, env: Any, spares: Any):
            joined.append(members.enter(store, name, {"started": env[STARTED]}))
            members.beat(store, joined[-1], 1)
            return super().call(command, name, carrier, env, spares)

    ray = Joining(2, {"b": 0})
    assert run(ray) == 130
    assert ray.killed == 2
    seen = members.Watch(Folder(tmp_path), 60.0)
    seen.look()
    assert seen.alive() == joined[1:]


NODES = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(True, head_node_args={"num_cpus": 1, "include_dashboard": False})
cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.shutdown()
"""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def islands_of(run: Path) -> dict[str, int]:
    """The processes of a run's islands, by name; actors have no name."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            lines = path.read_bytes().split(b"\0")
            env = {k: v for k, _, v in (line.partition(b"=") for line in lines)}
            if env.get(b"RELAXJAX_CARRIER") == f"ray:{run}".encode():
                found[env[b"RELAXJAX_ISLAND"].decode()] = int(path.parent.name)
    return found


@pytest.fixture
def cluster() -> Iterator[str]:
    """The address of two nodes of one CPU each."""
    env = os.environ | {"RAY_AUTH_MODE": "disabled"}
    with subprocess.Popen(
        [sys.executable, "-u", "-c", NODES], env=env, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as head:  # fmt: skip
        assert head.stdout is not None
        lines = (line.strip() for line in head.stdout)
        yield next(line for line in lines if re.match(r"[\d.]+:\d+$", line))
        head.communicate("\n")


class Command:
    """`relaxjax islands` on two nodes, and what its run's folder says."""

    def __init__(self, folder: Path, cluster: str):
        self.run, self._tick = folder / "run", threading.Event()
        script = folder / "train.py"
        script.write_text(QUIET)
        words = ["islands", str(script), "-n", "2", "--carrier", f"ray:{self.run}"]
        self._words = [sys.executable, "-m", "relaxjax", *words]
        self._env = os.environ | {"RAY_AUTH_MODE": "disabled", "RAY_ADDRESS": cluster}
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self._words, env=self._env, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def until(self, holds: Callable[[], Any]) -> None:
        while not holds():
            self._tick.wait(0.05)
            assert self.process.poll() is None, self.process.communicate()[0]

    def newest(self) -> int:
        return log.newest(Folder(self.run))

    def both_after(self, version: int) -> bool:
        names = set()
        for v in range(version + 1, self.newest() + 1):
            record, _ = log.read(Folder(self.run), v)
            names |= {c["island"] for c in record["contributions"]}
        return len(names) == 2

    def incarnation(self, name: str) -> int:
        return members.newest(Folder(self.run))[name]

    def islands_end(self) -> None:
        """Waits for it."""
        while islands_of(self.run):
            self._tick.wait(0.05)

    def merges_right(self) -> None:
        """All merges again are equal, and no contribution is in two of them."""
        folder = Folder(self.run)
        merges = list(replay(folder))
        assert all(merge.is_equal and not merge.fault for merge in merges)
        records = [log.read(folder, merge.version)[0] for merge in merges]
        parts = [
            (c["island"], c["incarnation"], record["fragment"], c["base"])
            for record in records
            for c in record["contributions"]
        ]
        assert len(parts) == len(set(parts))


@pytest.fixture
def command(cluster, tmp_path) -> Iterator[Command]:
    found = Command(tmp_path, cluster)
    try:
        yield found
    finally:
        found.process.kill()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed")
def test_islands_are_actors_that_come_back(command):
    """On two nodes; an actor is killed, then an island, then there is a Ctrl-C."""
    command.until(lambda: command.both_after(0))
    found = islands_of(command.run)
    actors = {name: parent(pid) for name, pid in found.items()}
    assert len({parent(actor) for actor in actors.values()}) == 2  # raylets
    for name, victim in ("island-0", actors["island-0"]), ("island-1", None):
        before, version = command.incarnation(name), command.newest()
        os.kill(victim or islands_of(command.run)[name], signal.SIGKILL)
        command.until(lambda n=name, b=before: command.incarnation(n) > b)
        command.until(lambda v=version: command.both_after(v + 4))
    command.process.send_signal(signal.SIGINT)
    said, _ = command.process.communicate(timeout=60)
    assert command.process.returncode == 130, said
    command.islands_end()
    command.merges_right()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_RAY, reason="Ray is not installed")
def test_islands_end_with_a_command_that_is_killed_and_the_next_one_goes_on(command):
    command.until(lambda: command.both_after(2))
    before = {name: command.incarnation(name) for name in islands_of(command.run)}
    command.process.kill()
    command.process.communicate()
    command.islands_end()
    version = command.newest()
    assert version > 2
    command.start()
    command.until(lambda: command.both_after(version))
    assert before.keys() == islands_of(command.run).keys()
    assert all(command.incarnation(name) > i for name, i in before.items())
    command.process.send_signal(signal.SIGINT)
    command.process.communicate(timeout=60)
    command.islands_end()
    command.merges_right()

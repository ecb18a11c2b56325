"""Islands of several processes: all take over the same, and end together."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from relaxjax import islands
from relaxjax.cli._app import app
from relaxjax.islands import Folder, Superseded
from relaxjax.islands.common import _log as log
from relaxjax.islands.common._agreed import Agreed
from relaxjax.islands.common._channel import Fragment, Joined, News, Offer
from relaxjax.islands.common._members import Member, enter
from relaxjax.islands.one import _together as together
from relaxjax.islands.replayed._replay import replay
from tests.islands.world import PARAMS, SETTINGS

N = 3


class Mail:
    """Answers that a test gives."""

    def __init__(self, *answers: Any):
        self.answers, self.calls = list(answers), list[str]()

    def arrived(self) -> News:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def send(self, offer: Offer) -> None:
        self.calls.append(f"send {offer.version}")

    def wait_for(self, version: int) -> None:
        self.calls.append(f"wait {version}")

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def in_processes(monkeypatch):
    """Runs a function as N processes would: threads here, and queues between them."""
    me, queues = threading.local(), [Queue[np.ndarray]() for _ in range(N)]

    def broadcast(array: np.ndarray) -> np.ndarray:
        if me.index == 0:
            for queue in queues[1:]:
                queue.put(array)
            return array
        heard = queues[me.index].get()
        assert (heard.shape, heard.dtype) == (array.shape, array.dtype)
        assert not array.any(), "a collective adds what all give"
        return heard

    monkeypatch.setattr(together, "_broadcast", broadcast)
    monkeypatch.setattr(jax, "process_count", lambda: N)
    monkeypatch.setattr(jax, "process_index", lambda: me.index)

    def run(what: Callable[[int], Any]) -> list[Any]:
        found: list[Any] = [None] * N

        def one(index: int) -> None:
            me.index = index
            try:
                found[index] = what(index)
            except BaseException as error:
                found[index] = error

        threads = [
            threading.Thread(target=one, args=(i,), daemon=True) for i in range(N)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a process waits for ever"
        assert all(queue.empty() for queue in queues), "nobody has heard it"
        return found

    return run


def fragments(seed: int) -> list[Fragment]:
    rng = np.random.default_rng(seed)
    one = {"w.0": rng.normal(size=(2, 3)), "b": np.float32(rng.normal())}
    two = {
        "x/y": np.asarray(rng.normal(size=5), jnp.bfloat16),
        "none": np.zeros((0, 2)),
    }
    return [Fragment(2, 7, one), Fragment(0, 9, two)]


def same(a: Any, b: Any) -> None:
    assert [(f.number, f.version) for f in a] == [(f.number, f.version) for f in b]
    for f, g in zip(a, b, strict=True):
        assert list(f.anchor) == list(g.anchor)
        for name, x in f.anchor.items():
            y = g.anchor[name]
            assert (np.shape(x), x.dtype) == (y.shape, y.dtype)
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("part", [1 << 30, 100])
def test_all_hear_what_process_0_is_told(in_processes, monkeypatch, part):
    monkeypatch.setattr(together, "_PART", part)  # as if letters were very long
    told = [
        News(4, [], set(), False),
        News(9, fragments(0), {9, 7}, True),
        News(9, [], {8}, False),
    ]
    mail = Mail(*told)

    def run(index: int) -> list[News]:
        mine = together.Following() if index else together.Leading(mail)
        offer = Offer(5, 1, {}, 1.0, 1, 1, [], 0, 0.0)
        heard = [mine.arrived() for _ in told]
        mine.send(offer)
        mine.wait_for(6)
        mine.close()
        return heard

    for heard in in_processes(run):
        for news, expected in zip(heard, told, strict=True):
            same(news.fragments, expected.fragments)
            assert (news.version, news.merged, news.wanted) == (
                expected.version, expected.merged, expected.wanted,
            )  # fmt: skip
    assert mail.calls == ["send 5", "wait 6", "close"]


def test_all_join_as_process_0_has(in_processes):
    begun = Joined(Member("a-b", 12), 9, fragments(1))
    run = Agreed.of(SETTINGS, PARAMS)
    for joined, _ in in_processes(
        lambda index: together.enter(lambda: (begun, Mail()), run)
    ):
        assert joined[:2] == begun[:2]
        same(joined.fragments, begun.fragments)


def test_a_process_that_joins_otherwise_is_named(in_processes):
    """Each looks at its own arguments: process 0 alone compares them with the run."""
    begun = Joined(Member("a", 1), 0, fragments(1))

    def join(index: int) -> Any:
        settings = SETTINGS._replace(sync_every=2 * (index + 1) if index < 2 else 2)
        params = PARAMS if index < 2 else {"a": PARAMS["a"]}
        settings = settings._replace(fragments=1 if index == 2 else 2)
        run = Agreed.of(settings, params)
        return together.enter(lambda: (begun, Mail()), run)

    first, second, third = in_processes(join)
    assert first[0] == begun
    for error, said in (
        (second, "process 1 has joined otherwise .*: sync_every is 4 here and 2 there"),
        (third, "process 2 .*fragments is 1 here and 2 there; params have 1 leaves"),
    ):
        assert isinstance(error, ValueError)
        assert re.search(said, str(error))


def test_a_process_whose_params_are_wrong_is_its_islands_fault(in_processes, tmp_path):
    """Slices are gathered, so that the island is left out of the merge, and named."""
    start = {"a": np.zeros(4, np.float32)}

    def run(index: int) -> Any:
        how: dict[str, Any] = {"sync_every": 2, "fragments": 1, "mode": "rounds"}
        with islands.join(start, f"folder:{tmp_path}", "one", **how) as island:
            params = island.params
            for _ in range(4):
                params = {"a": params["a"] + 1}
                wrong = {"a": params["a"] * np.nan if index != 1 else params["a"]}
                params = island.exchange(wrong)
            return params

    in_processes(run)
    line, _ = log.read(Folder(tmp_path), 1)
    told = [c["cause"] for c in line["left_out"]]
    assert (told, line["contributions"]) == (["finite"], [])


def test_what_ends_process_0_ends_all(in_processes):
    mail = Mail(Superseded("islands: a newer one has joined"), SystemExit(0))

    def run(index: int) -> Any:
        mine = together.Following() if index else together.Leading(mail)
        with pytest.raises((Superseded, RuntimeError)) as first:
            mine.arrived()
        with pytest.raises(SystemExit) as last:
            mine.arrived()
        return first.value, last.value.code

    for index, (first, code) in enumerate(in_processes(run)):
        assert isinstance(first, Superseded) == (index == 0)
        assert "a newer one has joined" in str(first)
        if index:
            assert re.search(rf"process {index} ends because process 0", str(first))
        assert code == 0

    def join() -> Any:
        raise ValueError("islands: no such carrier")

    for error in in_processes(
        lambda index: together.enter(join, Agreed.of(SETTINGS, PARAMS))
    ):
        assert isinstance(error, ValueError | RuntimeError)
        assert "no such carrier" in str(error)


@pytest.mark.parametrize("mode", ["decoupled", "rounds"])
def test_an_island_of_several_processes(in_processes, tmp_path, mode):
    """All have the same params after each step; one offers, and one is a member."""
    start = {"a": np.zeros(4, np.float32), "b": np.ones(3, np.float32)}

    def run(index: int) -> Any:
        seen = []
        with islands.join(
            start, f"folder:{tmp_path}", "one", sync_every=4, fragments=2, mode=mode,
            poll=0.001, pace=200.0, keep=True, compressor="quantize8+ef14",
        ) as island:  # fmt: skip
            params = island.params
            for _ in range(40):
                params = {k: x + 0.25 for k, x in params.items()}
                params = island.exchange(params, tokens=2)
                seen.append(params)
            return seen, island.seed, island.merged, island.dropped, island.version

    first, *others = in_processes(run)
    for other in others:
        assert other[1:] == first[1:]
        for mine, params in zip(other[0], first[0], strict=True):
            for name, x in params.items():
                np.testing.assert_array_equal(mine[name], x)
    done = list(replay(Folder(tmp_path)))
    assert len(done) == log.newest(Folder(tmp_path)) >= 1
    assert all(merge.is_equal and not merge.fault for merge in done)
    for version in range(1, len(done) + 1):
        record, _ = log.read(Folder(tmp_path), version)
        assert [c["island"] for c in record["contributions"]] == ["one"]
    assert enter(Folder(tmp_path), "one", {}).incarnation == 2


def invoked(*words: str) -> Any:
    return CliRunner().invoke(app, ["islands", *words])


def test_each_island_is_a_run_of_its_own(tmp_path, monkeypatch):
    script, asked = tmp_path / "train.py", list[Any]()
    script.touch()

    def supervise(
        command: Any, names: Any, carrier: str, env: Any, *, spares: Any
    ) -> int:
        asked.append((command[2:], names, carrier, spares))
        return 0

    monkeypatch.setattr("relaxjax.islands.supervise", supervise)
    place = f"folder:{tmp_path}"
    words = str(script), "x", "-n", "2", "--processes", "3", "--carrier", place
    assert invoked(*words).exit_code == 0
    run = ["-m", "relaxjax", "run", "-n", "3", "--grace", "1", str(script), "x"]
    assert asked == [(run, ["island-0", "island-1"], place, False)]


@pytest.mark.parametrize("other", [["--spares"], ["--carrier", "ray:x"]])
def test_several_processes_have_no_spares_and_no_actors(tmp_path, other):
    script = tmp_path / "train.py"
    script.touch()
    said = invoked(str(script), "--processes", "2", *other)
    assert said.exit_code == 2
    assert f"--processes 2 does not go with {' '.join(other)}" in said.stderr


SCRIPT = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from relaxjax import hosts, islands
hosts.join()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
whole, sliced = NamedSharding(mesh, P()), NamedSharding(mesh, P("data"))
def put(x, where):
    return jax.make_array_from_callback(x.shape, where, lambda i: x[i])
start = {"a": put(np.zeros((3, 2), np.float32), whole),
         "b": put(np.zeros(8, np.float32), sliced)}
@jax.jit
def train_step(params, x):
    return jax.tree.map(lambda p: 0.9 * p + x.mean() * jnp.cos(p), params)
with islands.join(start, sync_every=4, fragments=2, grace=0.2, keep=True, poll=0.01,
                  lost_after=2.0, pace=30.0) as island:
    params, rng = island.params, np.random.default_rng(island.seed)
    for step in island.steps(int(sys.argv[1])):
        x = rng.normal(size=4).astype(np.float32)
        params = train_step(params, put(x, sliced))
        params = island.exchange(params, tokens=3)
    assert params["b"].sharding == sliced and params["a"].is_fully_replicated
"""


def processes_of(run: Path) -> dict[tuple[str, str], int]:
    """Processes by island and by number."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            lines = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        env = {k: v for k, _, v in (line.partition("=") for line in lines)}
        if env.get("RELAXJAX_CARRIER") == f"folder:{run}" and "JAX_PROCESS_ID" in env:
            key = env["RELAXJAX_ISLAND"], env["JAX_PROCESS_ID"]
            found[key] = int(path.parent.name)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["0", "1"])
def test_processes_are_killed_and_their_island_comes_back(tmp_path, victim):
    """Two islands of two processes each; all steps run again are equal to the bit."""
    script, run = tmp_path / "train.py", tmp_path / "run"
    script.write_text(SCRIPT)
    words = ["relaxjax", "islands", str(script), "600", "-n", "2", "--processes", "2"]
    command = subprocess.Popen(
        [sys.executable, "-m", *words, "--carrier", f"folder:{run}"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    lines, tick = list[str](), threading.Event()
    reader = threading.Thread(target=lambda: lines.extend(command.stdout or ()))
    reader.start()

    def merged(name: str, incarnation: int) -> bool:
        newest = log.newest(Folder(run)) if (run / "log").is_dir() else -1
        return any(
            (c["island"], c["incarnation"]) == (name, incarnation)
            for v in range(max(1, newest - 5), newest + 1)
            for c in log.read(Folder(run), v)[0]["contributions"]
        )

    def until(holds: Callable[[], bool]) -> None:
        while not holds():
            tick.wait(0.05)
            assert command.poll() is None, "".join(lines)

    try:
        until(lambda: merged("island-0", 1) and merged("island-1", 1))
        os.kill(processes_of(run)["island-1", victim], signal.SIGKILL)
        until(lambda: merged("island-1", 2))
        assert command.wait() == 0, "".join(lines)
    finally:
        command.kill()
        reader.join()
        assert command.stdout is not None
        command.stdout.close()
    assert not processes_of(run)
    again = subprocess.run(
        [sys.executable, "-m", "relaxjax", "islands", "replay", str(run), str(script),
         "600", "--processes", "2"], capture_output=True, text=True,
    )  # fmt: skip
    assert again.returncode == 0, again.stdout + again.stderr
    assert re.search(r"contributions of 3 processes .* (\d+) equal", again.stdout)
    made, equal = re.findall(r"(\d+) (?:contributions|equal to the bit)", again.stdout)[
        -2:
    ]
    assert made == equal, again.stdout

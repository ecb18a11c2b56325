"""Ray on two nodes with links between them: bytes as stated, a cut, and a lost node."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from relaxjax import hosts
from relaxjax.islands import Folder
from relaxjax.islands.common import _log as log

SIZE = 500_000  # params of each of two fragments
SCRIPT = f"""
import numpy as np
from itertools import count
from relaxjax import islands
start = {{name: np.zeros({SIZE}, np.float32) for name in "ab"}}
how = dict(sync_every=20, fragments=2, lost_after=4.0, pace=10.0)
with islands.join(start, **how) as island:
    params = island.params
    for step in count(1):
        params = {{k: x + np.float32(1) for k, x in params.items()}}
        params = island.exchange(params, tokens=3)
"""
RAY = Path(sys.executable).parent / "ray"
missing = hosts.Namespaces.missing()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
    pytest.mark.skipif(missing is not None, reason=str(missing)),
]


class Nodes:
    """Two nodes of a Ray cluster in namespaces, and the command on the first."""

    def __init__(self, folder: Path, links: hosts.Namespaces):
        self.run, self._links, self._tick = (
            Folder(folder / "run"),
            links,
            threading.Event(),
        )
        self._places = links.open(["head", "other"])
        head, self._processes = self._places["head"].address, list[Any]()
        quiet = {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}
        self._env = os.environ | quiet | {"RAY_ADDRESS": f"{head}:6379"}
        self._output, self._lost = folder / "output.txt", False
        rest = "--disable-usage-stats", "--block"
        here = f"--node-ip-address={head}", "--port=6379", "--include-dashboard=false"
        self.start("head", RAY, "start", "--head", *here, "--num-cpus=2", *rest)
        self.until(lambda: self._nodes() == 1)
        there = f"--node-ip-address={self._places['other'].address}"
        join = f"--address={head}:6379", there, "--num-cpus=1"
        self.start("other", RAY, "start", *join, *rest)
        self.until(lambda: self._nodes() == 2)
        script = folder / "train.py"
        script.write_text(SCRIPT)
        words = "islands", script, "-n", "2", "--carrier", f"ray:{self.run.place}"
        self.start("head", sys.executable, "-m", "relaxjax", *words)

    def start(self, node: str, *command: Any) -> None:
        inside = "ip", "netns", "exec", self._places[node].namespace
        with self._output.open("ab") as output:
            self._processes.append(
                subprocess.Popen(
                    [*map(str, inside), *map(str, command)],
                    env=self._env, stdin=subprocess.DEVNULL, stdout=output,
                    stderr=output,
                )
            )  # fmt: skip

    def until(self, holds: Callable[[], Any]) -> None:
        while not holds():
            self._tick.wait(0.1)
            ended = [p for p in self._processes if p.poll() is not None]
            assert not ended or self._lost, self._output.read_text()

    def lose(self, node: str) -> None:
        """Kills all that runs on a node."""
        self._lost = True
        for pid in self._pids(node):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def cut(self, node: int, state: str) -> None:
        """Sets the link of a node "down" or "up"."""
        link = f"{self._links._prefix}v{node}"
        subprocess.run(["ip", "link", "set", link, state], check=True)

    def islands(self) -> dict[str, str]:
        """On which node each island's process is."""
        found = {}
        for node in self._places:
            for pid in self._pids(node):
                with suppress(OSError):
                    text = Path(f"/proc/{pid}/environ").read_text(errors="replace")
                    for line in text.split("\0"):
                        if line.startswith("RELAXJAX_ISLAND="):
                            found[line.partition("=")[2]] = node
        return found

    def newest(self) -> int:
        return log.newest(self.run)

    def merged(self, after: int) -> list[list[tuple[str, int]]]:
        """Who has contributed to each merge after a version."""
        lines = (log.read(self.run, v)[0] for v in range(after + 1, self.newest() + 1))
        return [
            [(c["island"], c["incarnation"]) for c in line["contributions"]]
            for line in lines
        ]

    def both_after(self, version: int) -> bool:
        return any(len(parts) == 2 for parts in self.merged(version))

    def close(self) -> None:
        for node in self._places:
            self.lose(node)
        for process in self._processes:
            process.wait()
        # Else `ray.init()` looks for the cluster that is gone.
        named = Path("/tmp/ray/ray_current_cluster")
        if named.exists() and named.read_text().strip() == self._env["RAY_ADDRESS"]:
            named.unlink()

    def _pids(self, node: str) -> list[int]:
        listed = ["ip", "netns", "pids", str(self._places[node].namespace)]
        done = subprocess.run(listed, capture_output=True, text=True, check=False)
        return [int(pid) for pid in done.stdout.split()]

    def _nodes(self) -> int:
        """How many nodes the cluster says that it has."""
        inside = "ip", "netns", "exec", str(self._places["head"].namespace)
        ask = "import ray; ray.init(logging_level='ERROR'); print(len(ray.nodes()))"
        done = subprocess.run(
            [*inside, sys.executable, "-c", ask], env=self._env, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        return int(done.stdout) if done.stdout.strip().isdigit() else 0


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    links = hosts.Namespaces(125e6)
    found = Nodes(tmp_path, links)
    try:
        yield found
    finally:
        found.close()
        links.close()


def test_bytes_a_cut_and_a_lost_node(nodes):
    nodes.until(lambda: nodes.newest() >= 4 and nodes.both_after(nodes.newest() - 1))
    sent, begun = nodes._links.sent(), nodes.newest()
    nodes.until(lambda: nodes.newest() >= begun + 15)
    now, ended = nodes._links.sent(), nodes.newest()
    lines = [log.read(nodes.run, v)[0] for v in range(begun + 1, ended + 1)]
    assert all(len(line["contributions"]) == 2 for line in lines)
    (leader,) = {line["leader"].partition(".")[0] for line in lines}
    # What the store's node sends to the other one, and what that one sends, in models
    # of a fragment. Who leads reads two contributions and writes anchor and momentum;
    # all write their contribution, and who does not lead reads the anchor.
    leads = nodes.islands()[leader] == "other"
    stated = (2, 3) if leads else (1, 1)
    for before, after, models in zip(sent, now, stated, strict=True):
        expected = models * 4 * SIZE * (ended - begun)
        assert 1.0 <= (after - before) / expected <= 1.12

    def goes_on() -> None:
        version = nodes.newest()
        nodes.until(lambda: nodes.newest() >= version + 2)

    def both_go_on() -> None:
        version = nodes.newest()
        nodes.until(lambda: nodes.both_after(version))

    nodes.cut(1, "down")
    goes_on()  # with the island that the store's node has
    nodes.cut(1, "up")
    both_go_on()
    (name,) = (name for name, node in nodes.islands().items() if node != "head")
    newest = max(i for parts in nodes.merged(0) for n, i in parts if n == name)
    nodes.lose("other")
    goes_on()
    both_go_on()
    assert nodes.islands()[name] == "head"
    assert max(i for parts in nodes.merged(0) for n, i in parts if n == name) > newest
    keys = [
        (c["island"], c["incarnation"], line["fragment"], c["base"])
        for line in (log.read(nodes.run, v)[0] for v in range(1, nodes.newest() + 1))
        for c in line["contributions"]
    ]
    assert len(keys) == len(set(keys)), "merged twice"

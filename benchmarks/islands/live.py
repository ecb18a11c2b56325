"""Runs islands under faults, and notes when merges are committed.

They are those of `relaxjax islands`, which starts again who dies.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.islands import data, diary
from benchmarks.islands.disk import fill, small_disk
from benchmarks.islands.faults import Chaos, Fault, Met, Trouble, processes_of
from benchmarks.islands.setting import FOLDER, Setting
from benchmarks.report import Unavailable
from relaxjax.islands import DamagedFile, Folder
from relaxjax.islands.common import _log as log
from relaxjax.islands.common import _members as members
from relaxjax.islands.common._syncer import newest_lease

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_POLL = 0.02
_PATIENCE = 180.0  # seconds for all processes to train


class Lived(NamedTuple):
    """What was seen of a run.

    Attributes:
      folder: its files.
      start: when all had trained; the monotonic clock.
      stop: when it was ended.
      seconds_to_start: from the command to that start.
      met: the faults.
      commits: when each version was seen first; the monotonic clock.
      starts: how often the command was started.
      stood_still: the longest time in which this process itself, which sleeps 0.02 s
        at a time, did nothing: the machine was busy with something else.
    """

    folder: Path
    start: float
    stop: float
    seconds_to_start: float
    met: list[Met]
    commits: dict[int, float]
    starts: int
    stood_still: float = 0.0


class Command:
    """A module of Python in a process of its own, whose output goes to a file."""

    def __init__(self, folder: Path, arguments: list[str], address: str):
        """Starts it; `address` is that of a Ray cluster, or ""."""
        self._env = {**os.environ, **environment(folder)}
        self._env |= {"RAY_ADDRESS": address} if address else {}
        self._arguments, self._output = arguments, (folder / "output.txt").open("ab")
        self.starts = 0
        self.start()

    def start(self) -> None:
        """Starts it, again perhaps."""
        self.starts += 1
        self.process = subprocess.Popen(
            [sys.executable, "-m", *self._arguments],
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def has_ended(self) -> bool:
        """Whether the command is over."""
        return self.process.poll() is not None

    def end(self) -> None:
        """Ends it and its processes; they end with it, however it ends."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._output.close()


def environment(folder: Path) -> dict[str, str]:
    """Variables for the processes of a run."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {
        FOLDER: str(folder),
        "PYTHONPATH": path.rstrip(os.pathsep),
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": "1",
        "JAX_COMPILATION_CACHE_DIR": str(folder / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }


def islands(
    setting: Setting, faults: list[Fault], seconds: float, freeze_for: float, out: Path
) -> Lived:
    """A run of islands."""
    place = f"{setting.carrier}:{(out / 'run').absolute()}"
    arguments = ["relaxjax", "islands", str(HERE / "island.py")]
    arguments += ["-n", str(setting.islands), *["--spares"] * setting.spares]
    with ExitStack() as stack:
        address = stack.enter_context(_cluster(setting))
        troubles: dict[str, Trouble] = {}
        if any(fault.kind == "disk" for fault in faults):
            disk = stack.enter_context(small_disk(out / "run"))
            troubles["disk"] = partial(fill, disk)
        command = begin(setting, out, [*arguments, "--carrier", place], address)
        return _islands(setting, command, faults, seconds, freeze_for, out, troubles)


def _islands(
    setting: Setting,
    command: Command,
    faults: list[Fault],
    seconds: float,
    freeze_for: float,
    out: Path,
    troubles: dict[str, Trouble],
) -> Lived:
    store, commits = Folder(out / "run"), dict[int, float]()
    carrier = f"{setting.carrier}:{store.place}"

    def find(fault: Fault) -> tuple[str, int]:
        name = f"island-{fault.number}"
        if fault.kind == "syncer":
            name = _leader(store) or name
        return name, processes_of(carrier, "RELAXJAX_ISLAND").get(name, 0)

    def look() -> None:
        newest = log.newest(store, max(commits, default=-1))
        for version in range(max(commits, default=-1) + 1, newest + 1):
            commits[version] = time.monotonic()
        if command.has_ended():
            raise Unavailable(f"the islands have ended: see {out / 'output.txt'}")

    how = seconds, freeze_for, out, find, look, commits, troubles
    return live(setting, command, faults, *how)


@contextmanager
def _cluster(setting: Setting) -> Iterator[str]:
    """The address of a Ray cluster of this machine alone, if the carrier needs one."""
    if setting.carrier != "ray":
        yield ""
        return
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise Unavailable('--carrier ray needs pip install "relaxjax[ray]"') from error
    # As processes of the folder carrier are; Ray's own default is 15 less favored.
    os.environ.setdefault("RAY_worker_niceness", "0")
    ray.init(  # a cluster of its own, also where another one was left behind
        "local",
        num_cpus=setting.islands,
        include_dashboard=False,
        log_to_driver=False,
    )
    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()


def begin(
    setting: Setting, out: Path, arguments: list[str], address: str = ""
) -> Command:
    """Starts a command, with the data and the setting in its folder."""
    if not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists():
        raise Unavailable(
            "chaos finds processes by Linux's /proc/PID/task/PID/children"
        )
    out.mkdir(parents=True, exist_ok=True)
    data.write(out)
    setting.write(out)
    return Command(out.absolute(), arguments, address)


def live(
    setting: Setting,
    command: Command,
    faults: list[Fault],
    seconds: float,
    freeze_for: float,
    out: Path,
    find: Callable[[Fault], tuple[str, int]],
    look: Callable[[], None],
    commits: dict[int, float],
    troubles: Mapping[str, Trouble] | None = None,
) -> Lived:
    """Waits until all train, lets faults happen, and ends the command."""
    begun = time.monotonic()
    try:
        while not _all_train(setting, out):
            look()
            if time.monotonic() - begun > _PATIENCE:
                raise Unavailable(f"no training within {_PATIENCE:g} s: see {out}")
            time.sleep(_POLL)
        start, stop = time.monotonic(), time.monotonic()
        chaos, still = Chaos(faults, find, freeze_for, troubles), 0.0
        while stop < start + seconds:
            chaos.turn()
            look()
            time.sleep(_POLL)
            before, stop = stop, time.monotonic()
            still = max(still, stop - before)
        chaos.end()
    finally:
        command.end()
    spent, starts = start - begun, command.starts
    return Lived(out, start, stop, spent, chaos.met, dict(commits), starts, still)


def _all_train(setting: Setting, out: Path) -> bool:
    trained = {line["name"] for line in diary.read(out) if line["what"] == "step"}
    return len(trained) == setting.islands


def _leader(store: Any) -> str | None:
    """The name of the island that holds the lease; None between two leases."""
    try:
        _, holder = newest_lease(store, lambda words: None)
    except (OSError, DamagedFile):
        return None
    if holder is None or members.newest(store).get(holder.name) != holder.incarnation:
        return None
    return holder.name

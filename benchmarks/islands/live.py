"""Runs processes under faults, and notes when merges are committed.

Islands are those of `relaxjax islands`, which starts again who dies. Fail-stop is
`relaxjax run`, which ends when a process dies, and which is started again here at once.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.islands import diary, digits
from benchmarks.islands.faults import Chaos, Fault, Met, processes, processes_of
from benchmarks.islands.setting import FOLDER, Setting
from benchmarks.report import Unavailable
from relaxjax.islands import DamagedFile, Folder
from relaxjax.islands import _log as log
from relaxjax.islands import _members as members
from relaxjax.islands._syncer import newest_lease

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
    """`relaxjax` in a process of its own, whose output goes to a file."""

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
            [sys.executable, "-m", "relaxjax", *self._arguments],
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
    arguments = ["islands", str(HERE / "island.py"), "-n", str(setting.islands)]
    arguments += ["--spares"] * setting.spares
    with _cluster(setting) as address:
        command = _begin(setting, out, [*arguments, "--carrier", place], address)
        return _islands(setting, command, faults, seconds, freeze_for, out)


def _islands(
    setting: Setting,
    command: Command,
    faults: list[Fault],
    seconds: float,
    freeze_for: float,
    out: Path,
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

    return _live(
        setting, command, faults, seconds, freeze_for, out, find, look, commits
    )


def fail_stop(
    setting: Setting, faults: list[Fault], seconds: float, freeze_for: float, out: Path
) -> Lived:
    """A run of one JAX runtime, which begins again when a process dies."""
    arguments = ["run", "-n", str(setting.islands), "--grace", "0"]
    command = _begin(setting, out, [*arguments, str(HERE / "fail_stop.py")])

    faults_since = 0

    def find(fault: Fault) -> tuple[str, int]:
        nonlocal faults_since
        faults_since += 1
        number = 0 if fault.kind == "syncer" else fault.number
        found = processes(command.process.pid, "JAX_PROCESS_ID")
        return f"island-{number}", found.get(str(number), 0)

    def look() -> None:
        nonlocal faults_since
        if command.has_ended():
            if not faults_since:
                raise Unavailable(f"ended without a fault: see {out / 'output.txt'}")
            faults_since = 0
            command.start()

    return _live(setting, command, faults, seconds, freeze_for, out, find, look, {})


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
    ray.init(num_cpus=setting.islands, include_dashboard=False, log_to_driver=False)
    try:
        yield ray.get_runtime_context().gcs_address
    finally:
        ray.shutdown()


def _begin(
    setting: Setting, out: Path, arguments: list[str], address: str = ""
) -> Command:
    if not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists():
        raise Unavailable(
            "chaos finds processes by Linux's /proc/PID/task/PID/children"
        )
    out.mkdir(parents=True)
    digits.write(out)
    setting.write(out)
    return Command(out.absolute(), arguments, address)


def _live(
    setting: Setting,
    command: Command,
    faults: list[Fault],
    seconds: float,
    freeze_for: float,
    out: Path,
    find: Callable[[Fault], tuple[str, int]],
    look: Callable[[], None],
    commits: dict[int, float],
) -> Lived:
    begun = time.monotonic()
    try:
        while not _all_train(setting, out):
            look()
            if time.monotonic() - begun > _PATIENCE:
                raise Unavailable(f"no training within {_PATIENCE:g} s: see {out}")
            time.sleep(_POLL)
        start, chaos = time.monotonic(), Chaos(faults, find, freeze_for)
        stop, still = start, 0.0
        while stop < start + seconds:
            chaos.turn()
            look()
            time.sleep(_POLL)
            before, stop = stop, time.monotonic()
            still = max(still, stop - before)
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

"""What stands beside islands under the same faults: fail-stop training, and torchft.

Fail-stop is `relaxjax run`, which ends when a process dies, and which is started again
here at once. torchft is PyTorch's DiLoCo for processes that come and go: each process
that dies is started again at once, and its lighthouse, which knows who is there, is
left alone.
"""

from importlib.util import find_spec
from pathlib import Path

from benchmarks.islands.faults import Fault, processes
from benchmarks.islands.live import HERE, Lived, begin, live
from benchmarks.islands.setting import Setting
from benchmarks.report import Unavailable


def fail_stop(
    setting: Setting, faults: list[Fault], seconds: float, freeze_for: float, out: Path
) -> Lived:
    """A run of one JAX runtime, which begins again when a process dies."""
    arguments = ["relaxjax", "run", "-n", str(setting.islands), "--grace", "0"]
    command = begin(setting, out, [*arguments, str(HERE / "fail_stop.py")])

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

    return live(setting, command, faults, seconds, freeze_for, out, find, look, {})


def has_torchft() -> bool:
    """Whether PyTorch and torchft are installed."""
    return all(find_spec(name) for name in ("torch", "torchft"))


def torchft(
    setting: Setting, faults: list[Fault], seconds: float, freeze_for: float, out: Path
) -> Lived:
    """Processes of torchft, each started again when it dies."""
    if not has_torchft():
        raise Unavailable("needs pip install torch torchft")
    command = begin(setting, out, ["benchmarks.islands.torchft_crew"])

    def find(fault: Fault) -> tuple[str, int]:
        name = f"island-{fault.number}"
        return name, processes(command.process.pid, "RELAXJAX_ISLAND").get(name, 0)

    def look() -> None:
        if command.has_ended():
            raise Unavailable(f"torchft has ended: see {out / 'output.txt'}")

    return live(setting, command, faults, seconds, freeze_for, out, find, look, {})

"""`relaxjax run`: a script in several local processes, loopback or shaped links."""

import os
import re
import sys
from dataclasses import dataclass
from os.path import isfile

import typer

from relaxjax import hosts
from relaxjax._core.foreign._ranges import LINK, PROCESSES, SECONDS
from relaxjax._core.foreign._rates import RATE, UNITS, bytes_per_second
from relaxjax.cli.common._errors import user_errors
from relaxjax.cli.common._takes import argument, option, takes

SETTINGS = {
    "context_settings": {
        "allow_interspersed_args": False,
        "ignore_unknown_options": True,
    }
}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of `relaxjax run`."""

    script: str = argument("A Python script, or 'train' and its options.", default=...)
    arguments: list[str] | None = argument(
        "The arguments of the script.", metavar="..."
    )
    processes: int = option("Number of processes.", "-n", "--processes", default=2)
    devices: int = option("CPU devices that each process emulates.", default=1)
    rate: str | None = option(
        "Bandwidth of each process's link, as in 200mbit, by network "
        "namespaces (Linux, root, iproute2). Default: loopback, not limited.",
        metavar="RATE",
    )
    grace: float = option(
        "Seconds that the others get to end when one has failed.", default=30.0
    )


@takes(RunOptions)
def run(options: RunOptions) -> None:
    """Run a script in several processes that find each other.

    Each process finds JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID and
    RELAXJAX_JOB_TOKEN, a secret of this job, in its environment, which
    relaxjax.hosts.join() and `relaxjax train` read.
    """
    with user_errors():
        status = _run(options)
    raise typer.Exit(status)


def _run(options: RunOptions) -> int:
    processes, devices, grace = options.processes, options.devices, options.grace
    for name, number in {"-n": processes, "--devices": devices}.items():
        if rule := PROCESSES.broken(number):
            raise ValueError(f"{name} {number}: it must be {rule}")
    if rule := SECONDS.broken(grace):
        raise ValueError(f"--grace {grace}: it must be a number of seconds, {rule}")
    program = _program(options.script)
    command = [sys.executable, "-u", *program, *(options.arguments or [])]
    threads = max(2 * devices, os.cpu_count() or 1)
    environment = {"JAX_NUM_CPU_DEVICES": str(devices), "NPROC": str(threads)}
    try:
        rate = options.rate
        links = hosts.Loopback() if rate is None else hosts.Namespaces(bytes_of(rate))
        ended = hosts.launch(
            command, processes, links=links, environment=environment, grace=grace
        )
    except OSError as error:
        raise ValueError(f"run: {error}") from error
    if ended.why:
        print(f"relaxjax run: {ended.why}; all have ended", file=sys.stderr)
    return ended.status


def bytes_of(rate: str) -> float:
    """Bytes per second of a rate as `tc` spells it, such as 200mbit.

    Raises:
      ValueError: it is spelled otherwise.
    """
    match = re.fullmatch(RATE, rate.lower())
    found = bytes_per_second(*match.groups()) if match else 0.0
    if found not in LINK:
        raise ValueError(
            f"--rate {rate}: it must be a number and one of {', '.join(UNITS)} (bits "
            "per second), as in 200mbit"
        )
    return found


def _program(script: str) -> list[str]:
    """Python's arguments: a file, or this command line's own training."""
    if script == "train":
        return ["-m", "relaxjax", "train"]
    if not isfile(script):
        raise ValueError(f"run: {script} is not a file; name a Python script, or train")
    return [script]

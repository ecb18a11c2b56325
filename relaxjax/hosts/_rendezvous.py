"""Processes find each other before JAX's runtime starts, and say what is wrong.

JAX's runtime aborts a process that it cannot connect, without an exception. So every
process first reports to process 0, at the coordinator's own address, which it leaves
free again: who it is, and which versions it runs. All get the table of all, or the
same error.

Cost: one short connection for each process.
"""

import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_RETRY = 0.1
_REPLY = 5.0  # seconds beyond the wait that process 0's answer may take


class Member(NamedTuple):
    """A process of a job.

    Attributes:
      process_id: its number.
      host: the name of its machine.
      address: the IP address from which it reaches process 0.
      pid: its process id there.
    """

    process_id: int
    host: str
    address: str
    pid: int

    def __str__(self) -> str:
        return (
            f"process {self.process_id} ({self.host}, {self.address}, pid {self.pid})"
        )


class Report(NamedTuple):
    """What a process reports.

    Attributes:
      member: itself.
      processes: how many it expects.
      versions: of what it runs, by name.
    """

    member: Member
    processes: int
    versions: Mapping[str, str]


def me(index: int, address: str = "127.0.0.1") -> Member:
    """This process as a member."""
    return Member(index, socket.gethostname(), address, os.getpid())


def call(
    coordinator: str,
    processes: int,
    index: int,
    *,
    versions: Mapping[str, str],
    wait: float,
) -> tuple[Member, ...]:
    """Reports to process 0, or, as process 0, hears all reports.

    Args:
      coordinator: "host:port".
      processes: how many there are to be.
      index: of this one.
      versions: of what this process runs.
      wait: seconds for all to come.

    Returns:
      All processes, in order.

    Raises:
      ValueError: no address; processes that disagree on number, index or versions.
      OSError: the address is taken, or is not one of this machine.
      TimeoutError: process 0 or others did not come.
    """
    host, _, port = coordinator.rpartition(":")
    if not (host and port.isdigit()):
        raise ValueError(
            f"join: coordinator_address={coordinator!r}; it must be HOST:PORT, the "
            "address of process 0 and a free port there"
        )
    until = time.monotonic() + wait

    def report(address: str) -> Report:
        return Report(me(index, address), processes, versions)

    if index:
        answer = _reported(coordinator, report, until, wait)
    else:
        answer = _heard(coordinator, report(host), until, wait)
    if "error" in answer:
        raise _KINDS[answer["kind"]](answer["error"])
    return tuple(Member(*row) for row in answer["members"])


def problem(reports: list[Report]) -> str | None:
    """What stands against starting, in words; process 0's report comes first."""
    first, *others = reports
    seen = {0: first.member}
    for report in others:
        member = report.member
        if report.processes != first.processes:
            return (
                f"{member} was told of {report.processes} processes, and "
                f"{first.member} of {first.processes}: give all the same number"
            )
        if not 0 <= member.process_id < first.processes:
            return (
                f"{member}: the numbers of {first.processes} processes are 0 to "
                f"{first.processes - 1}"
            )
        if other := seen.get(member.process_id):
            return (
                f"{other} and {member} have the same number: is a process of an "
                "earlier run still there?"
            )
        seen[member.process_id] = member
    lines = [
        f"  {name}: {first.versions.get(name)} on {first.member}, "
        f"{report.versions.get(name)} on {report.member}"
        for report in others
        for name in sorted({*first.versions, *report.versions})
        if first.versions.get(name) != report.versions.get(name)
    ]
    if lines:
        return "processes run different versions:\n" + "\n".join(lines)
    return None


_KINDS = {"value": ValueError, "timeout": TimeoutError}


def _reported(
    coordinator: str,
    report: Callable[[str], Report],
    until: float,
    wait: float,
) -> dict[str, Any]:
    """Reports, and waits for the answer."""
    host, _, port = coordinator.rpartition(":")
    failure = "no answer"
    while (left := until - time.monotonic()) > 0:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), left) as line:
                own = report(line.getsockname()[0])
                line.sendall(json.dumps(own).encode() + b"\n")
                line.settimeout(left + _REPLY)
                with line.makefile() as text:
                    if answer := text.readline():
                        return json.loads(answer)
                failure = "the connection was closed"
        except OSError as error:
            failure = str(error)
        time.sleep(min(_RETRY, max(0.0, left)))
    raise TimeoutError(
        f"join: this process has not reached the coordinator, process 0 at "
        f"{coordinator}, in {wait:g} s ({failure}). Is process 0 running, does this "
        "machine reach that address, and is the port open?"
    )


def _heard(
    coordinator: str, first: Report, until: float, wait: float
) -> dict[str, Any]:
    """Hears the others, and answers all alike."""
    try:
        server = socket.create_server(("", int(coordinator.rpartition(":")[2])))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise OSError(
            error.errno,
            f"join: process 0 cannot listen at {coordinator}: {why}. Is a process of "
            "an earlier run still there? Else choose another port",
        ) from error
    reports, lines = [first], []
    with server:
        while len(reports) < first.processes and problem(reports) is None:
            server.settimeout(max(0.001, until - time.monotonic()))
            try:
                line, _ = server.accept()
            except TimeoutError:
                break
            report = _report(line)
            if report is None:
                line.close()
            else:
                reports.append(report)
                lines.append(line)
        answer = _answer(reports, wait)
        for line in lines:
            with line:
                line.sendall(json.dumps(answer).encode() + b"\n")
    return answer


def _answer(reports: list[Report], wait: float) -> dict[str, Any]:
    wrong = problem(reports)
    if wrong:
        return {"kind": "value", "error": f"join: {wrong}"}
    members = sorted(report.member for report in reports)
    missing = sorted({*range(reports[0].processes)} - {m.process_id for m in members})
    if missing:
        came = ", ".join(map(str, members))
        text = f"join: processes {missing} did not come in {wait:g} s; came: {came}"
        return {"kind": "timeout", "error": text}
    return {"members": members}


def _report(line: socket.socket) -> Report | None:
    """What a process says of itself; None if it is none of a job."""
    line.settimeout(_REPLY)
    try:
        with line.makefile() as text:
            member, processes, versions = json.loads(text.readline())
        return Report(Member(*member), processes, versions)
    except (OSError, ValueError, TypeError):
        return None

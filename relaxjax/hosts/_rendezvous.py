"""Processes find each other before JAX's runtime starts, and say what is wrong.

JAX's runtime aborts a process that it cannot connect, without an exception. So every
process first reports to process 0, at the coordinator's own address, which is left free
again: who it is, and which versions it runs. All get the table of members, or the same
error.

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
_ERRORS = {"value": ValueError, "timeout": TimeoutError}


class Member(NamedTuple):
    """A process of a job.

    Attributes:
      process_id: its number.
      host: the name of its machine.
      address: the IP address from which it reaches process 0.
      pid: its process id on its machine.
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
      member: the process itself.
      processes: how many processes it expects.
      versions: the versions of what it runs, by name.
    """

    member: Member
    processes: int
    versions: Mapping[str, str]


def this_process(index: int, address: str = "127.0.0.1") -> Member:
    """This process as a member."""
    return Member(index, socket.gethostname(), address, os.getpid())


def rendezvous(
    coordinator: str,
    processes: int,
    index: int,
    *,
    versions: Mapping[str, str],
    wait: float,
) -> tuple[Member, ...]:
    """Reports to process 0 or, as process 0, hears all reports; returns all members.

    Args:
      coordinator: "host:port" of process 0.
      processes: number of processes.
      index: number of this process.
      versions: the versions of what this process runs, by name.
      wait: seconds for all to come.

    Raises:
      ValueError: no address; processes that disagree on their number, index or
        versions.
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
        return Report(this_process(index, address), processes, versions)

    if index:
        answer = _ask_first(coordinator, report, until, wait)
    else:
        answer = _answer_all(coordinator, report(host), until, wait)
    if "error" in answer:
        raise _ERRORS[answer["kind"]](answer["error"])
    return tuple(Member(*row) for row in answer["members"])


def problem(reports: list[Report]) -> str | None:
    """Why the job cannot start, in words; process 0's report comes first."""
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


def _ask_first(
    coordinator: str, report: Callable[[str], Report], until: float, wait: float
) -> dict[str, Any]:
    """Reports to process 0, and waits for its answer."""
    host, _, port = coordinator.rpartition(":")
    address, failure = (host.strip("[]"), int(port)), "no answer"
    while (left := until - time.monotonic()) > 0:
        try:
            with socket.create_connection(address, left) as connection:
                message = json.dumps(report(connection.getsockname()[0]))
                connection.sendall(message.encode() + b"\n")
                connection.settimeout(left + _REPLY)
                with connection.makefile() as text:
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


def _answer_all(
    coordinator: str, first: Report, until: float, wait: float
) -> dict[str, Any]:
    """Process 0 hears the others, and gives all the same answer."""
    try:
        server = socket.create_server(("", int(coordinator.rpartition(":")[2])))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise OSError(
            error.errno,
            f"join: process 0 cannot listen at {coordinator}: {why}. Is a process of "
            "an earlier run still there? Else choose another port",
        ) from error
    reports, connections = [first], []
    with server:
        while len(reports) < first.processes and problem(reports) is None:
            server.settimeout(max(0.001, until - time.monotonic()))
            try:
                connection, _ = server.accept()
            except TimeoutError:
                break
            report = _report(connection)
            if report is None:
                connection.close()
            else:
                reports.append(report)
                connections.append(connection)
        answer = _answer(reports, wait)
        for connection in connections:
            with connection:
                connection.sendall(json.dumps(answer).encode() + b"\n")
    return answer


def _answer(reports: list[Report], wait: float) -> dict[str, Any]:
    if wrong := problem(reports):
        return {"kind": "value", "error": f"join: {wrong}"}
    members = sorted(report.member for report in reports)
    missing = sorted({*range(reports[0].processes)} - {m.process_id for m in members})
    if missing:
        came = ", ".join(map(str, members))
        text = f"join: processes {missing} did not come in {wait:g} s; came: {came}"
        return {"kind": "timeout", "error": text}
    return {"members": members}


def _report(connection: socket.socket) -> Report | None:
    """The report that comes over a connection; None if it is a stranger's."""
    connection.settimeout(_REPLY)
    try:
        with connection.makefile() as text:
            member, processes, versions = json.loads(text.readline())
        return Report(Member(*member), processes, versions)
    except (OSError, ValueError, TypeError):
        return None

"""The processes of a job as they report themselves, and what keeps it from starting."""

import os
import socket
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from relaxjax.hosts._launchers import Layout


class Member(NamedTuple):
    """A process of a job.

    Attributes:
      process_id: its number.
      host: the name of its machine.
      address: the IP address from which it reaches process 0.
      pid: its process id on its machine.
      devices: numbers of the devices that it takes, of those that it sees; None: all.
      sees: the variable that says which devices it sees, and its value, or "".
    """

    process_id: int
    host: str
    address: str
    pid: int
    devices: tuple[int, ...] | None = None
    sees: str = ""

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
      layout: where its launcher has put it; None: no launcher says so.
    """

    member: Member
    processes: int
    versions: Mapping[str, str]
    layout: Layout | None = None


def this_process(index: int, address: str = "127.0.0.1") -> Member:
    """This process as a member."""
    return Member(index, socket.gethostname(), address, os.getpid())


def problem(reports: Sequence[Report]) -> str | None:
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

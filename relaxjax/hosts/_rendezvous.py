"""Processes find each other before JAX's runtime starts, and say what is wrong.

JAX's runtime aborts a process that it cannot connect, without an exception. So every
process first reports to process 0, at the coordinator's own address, which is left free
again: who it is, and which versions it runs. All get the table of members, or the same
error. One deadline is over everything; strangers at the port cost no time.

Cost: one short connection for each process.
"""

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from relaxjax._core.foreign._job import TOKEN
from relaxjax.hosts import _messages as messages
from relaxjax.hosts._addresses import Endpoint, connected, endpoint, listeners
from relaxjax.hosts._devices import assigned, line
from relaxjax.hosts._launchers import Layout
from relaxjax.hosts._meeting import Meeting
from relaxjax.hosts._members import Member, Report, problem, this_process

BIND = "JAX_COORDINATOR_BIND_ADDRESS"  # where process 0 listens; JAX reads it too
_RETRY = 0.1
_REPLY = 5.0  # seconds beyond the wait that process 0's answer may take
_GREETING = 5.0  # seconds after which who has not greeted is another program

_Make = Callable[[str], Report]  # of the address from which process 0 is reached


def rendezvous(
    coordinator: str,
    processes: int,
    index: int,
    *,
    versions: Mapping[str, str],
    wait: float,
    token: str = "",
    bind: str | None = None,
    devices: Sequence[int] | None = None,
    sees: str = "",
    layout: Layout | None = None,
) -> tuple[Member, ...]:
    """Reports to process 0 or, as process 0, hears all reports; returns all members.

    Args:
      coordinator: "host:port" of process 0.
      processes: number of processes.
      index: number of this process.
      versions: the versions of what this process runs, by name.
      wait: seconds for all to come.
      token: the job's secret; processes with another one are refused.
      bind: "host:port" at which process 0 listens; None: at the coordinator's address.
      devices: numbers of the devices that this process takes; None: by its layout.
      sees: which devices this process sees, in words.
      layout: where the launcher has put this process; None: nobody knows.

    Raises:
      ValueError: no address; a wait that is no time; processes that disagree on their
        number, index, versions or token.
      OSError: the address is taken, or is not one of this machine.
      TimeoutError: process 0 or others did not come.
    """
    at = endpoint(coordinator, "coordinator_address")
    require_wait(wait)
    until = time.monotonic() + wait

    def report(address: str) -> Report:
        ids = None if devices is None else tuple(devices)
        me = this_process(index, address)._replace(devices=ids, sees=sees)
        return Report(me, processes, versions, layout)

    if index:
        return _settled(_ask_first(at, report, until, wait, token))
    place = endpoint(bind, BIND) if bind else at
    meeting = Meeting(listeners(place), report(at.host), token)
    try:
        meeting.gather(until)
        answer = _answer(meeting, wait, place)
        meeting.answer(answer)
        by_hand = all(one.layout is None for one in meeting.reports())
    finally:
        meeting.close()
    if isinstance(answer, tuple) and (text := line(answer, by_hand=by_hand)):
        sys.stderr.write(f"relaxjax: {text}\n")
    return _settled(answer)


def require_wait(wait: float) -> None:
    """Refuses a wait that never ends, or is over before it begins."""
    if not 0 < wait < math.inf:
        raise ValueError(f"join: wait={wait}; it must be seconds, more than 0")


def _settled(answer: messages.Answer) -> tuple[Member, ...]:
    """The members, or the error that all have."""
    if isinstance(answer, Exception):
        raise answer
    return answer


def _ask_first(
    at: Endpoint, report: _Make, until: float, wait: float, token: str
) -> messages.Answer:
    """Reports to process 0 as soon as it is there."""
    failure = "no answer"
    while (left := until - time.monotonic()) > 0:
        try:
            return _asked(at, report, until, token)
        except messages.OtherTokenError as error:
            raise ValueError(f"join: {error}") from error
        except ValueError:
            failure = "something else listens there, which is not process 0 of this job"
        except OSError as error:
            failure = str(error)
        time.sleep(min(_RETRY, max(0.0, left)))
    raise TimeoutError(
        f"join: this process has not reached the coordinator, process 0 at {at}, in "
        f"{wait:g} s ({failure}). Is process 0 running, does this machine reach that "
        "address, and is the port open?"
    )


def _asked(at: Endpoint, report: _Make, until: float, token: str) -> messages.Answer:
    """What process 0 answers.

    Raises:
      OtherTokenError: process 0 has another token.
      ValueError: it is not process 0 who listens there.
      OSError: nobody does, or the time is over.
    """
    with connected(at, until) as connection:
        soon = min(until, time.monotonic() + _GREETING)
        try:
            first = messages.read_line(connection, soon, len(messages.HELLO) + 40)
        except TimeoutError as error:
            raise ValueError("no greeting") from error
        theirs, mine = messages.greeted(first), messages.nonce()
        said = report(connection.getsockname()[0])
        content = {"report": said, "nonce": mine}
        connection.sendall(messages.sealed(token, f"report {theirs}", content))
        last = messages.read_line(connection, until + _REPLY, messages.ANSWER)
        if last == messages.REFUSED.encode():
            raise messages.OtherTokenError(
                f"process 0 at {at} has another {TOKEN} than this process; give all "
                "processes of the job the same one, or none"
            )
        try:
            answer = messages.opened(token, f"answer {theirs} {mine}", last)
        except messages.OtherTokenError as error:
            raise ValueError("no answer of process 0") from error
        return messages.answer_of(answer, said.processes)


def _answer(meeting: Meeting, wait: float, place: Endpoint) -> messages.Answer:
    """What all are told: the members, or why there is no job."""
    reports = meeting.reports()
    if wrong := problem(reports):
        return ValueError(f"join: {wrong}")
    members = sorted(report.member for report in reports)
    missing = sorted({*range(reports[0].processes)} - {m.process_id for m in members})
    if not missing:
        return assigned(reports)
    text = (
        f"join: processes {missing} did not come in {wait:g} s; came: "
        f"{', '.join(map(str, members))}; process 0 listened at {place}"
    )
    if meeting.gone:
        gone = ", ".join(map(str, meeting.gone.values()))
        text += f"; came and left again: {gone}"
    if meeting.refused:
        where = ", ".join(sorted(meeting.refused))
        text += f"; refused, with another {TOKEN} than process 0: {where}"
    return TimeoutError(text)

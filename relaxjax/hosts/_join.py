"""Joins the processes of a job: the first line of a script for several hosts.

Cost: a rendezvous, and JAX's own start.
"""

import atexit
import os
import time
from collections.abc import Callable, Sequence
from threading import Event, Thread
from typing import NamedTuple

import jax
from jax._src.xla_bridge import backends_are_initialized

from relaxjax._core.foreign._job import TOKEN
from relaxjax.hosts._addresses import endpoint, stands_for_all
from relaxjax.hosts._description import Job, described
from relaxjax.hosts._devices import take_alone, told
from relaxjax.hosts._kv_store import LocalStore, ServiceStore, open_store
from relaxjax.hosts._launchers import seen
from relaxjax.hosts._members import Member, this_process
from relaxjax.hosts._rendezvous import BIND, rendezvous, require_wait
from relaxjax.workers import versions

_START = 30.0  # seconds at least for JAX's own start, whose time limit is an abort
_SEEN = 200  # characters of the variable that says which devices a process sees
_LINGER = 20.0  # seconds that process 0 waits at the end for the others to leave
_LINGER_LOST = 3.0  # likewise, when some of them never will
WATCH = "watch"  # folder of the store for the processes that watch each other


class Hosts(NamedTuple):
    """The processes of a job, as one of them sees them.

    Attributes:
      process_id: number of this process.
      members: all processes, in order.
      board: the key-value store by which they talk.
      coordinator_address: "host:port" of process 0; None where there is one process.
    """

    process_id: int
    members: tuple[Member, ...]
    board: LocalStore | ServiceStore
    coordinator_address: str | None = None


def join(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    devices: Sequence[int] | None = None,
    wait: float = 60.0,
) -> Hosts:
    """Joins the other processes of this job, if there are any.

    Call it once, before JAX is used. Without arguments, it takes what `relaxjax run` or
    the user has put in the environment (`JAX_COORDINATOR_ADDRESS`, `JAX_NUM_PROCESSES`,
    `JAX_PROCESS_ID`), or what SLURM, Open MPI and Kubernetes say; where there is
    nothing to find, this process is the only one. Then it calls
    `jax.distributed.initialize`.

    A process takes all devices that it sees where it is alone on its host, or where its
    launcher shows each process its own. Otherwise those of SLURM and Open MPI share the
    devices of their host. Process 0 says in a line which devices each has taken.

    JAX's preemption service is off, so that SIGTERM ends a process
    (`JAX_ENABLE_PREEMPTION_SERVICE=1` keeps it on), and its recoverability is on, so
    that the loss of a process is an error in the others and not an abort.

    Args:
      coordinator_address: address of process 0 with a free port there, "host:port".
      num_processes: number of processes.
      process_id: number of this process, from 0.
      devices: numbers of the devices that this process takes, of those that it sees,
        from 0. None: JAX_LOCAL_DEVICE_IDS ("0,1"), or as above.
      wait: seconds within which all must come; JAX's own start gets what is left of
        them, and 30 at least.

    Returns:
      The processes.

    Raises:
      ValueError: an incomplete or wrong description, also by SLURM; processes that
        disagree on their number, versions or token (`RELAXJAX_JOB_TOKEN`), or two with
        the same number.
      RuntimeError: JAX was used before, or this process has joined already.
      OSError: process 0 cannot listen at its address.
      TimeoutError: processes did not come; the message has their numbers, or the
        address.

    Example:
      >>> from relaxjax import hosts
      >>> len(hosts.join().members)
      1
    """
    _require_once()
    require_wait(wait)
    until, ids = time.monotonic() + wait, told(devices, os.environ)
    given = coordinator_address, num_processes, process_id
    job = described(*given, wait=wait, env=os.environ)
    if job is None:
        return _alone(ids)
    _require_first()
    members = rendezvous(
        *job[:3],
        versions=versions(),
        wait=wait,
        token=os.environ.get(TOKEN, ""),
        bind=os.environ.get(BIND) or None,
        devices=ids,
        sees=seen(os.environ)[:_SEEN],
        layout=job.layout,
    )
    _start(job, members, until - time.monotonic())
    hosts = Hosts(job.process_id, members, open_store(), job.address)
    atexit.register(_at_the_end(hosts))
    return hosts


def _start(job: Job, members: Sequence[Member], left: float) -> None:
    """Starts JAX's own runtime, whose coordinator listens where the others came."""
    jax.config.update("jax_enable_recoverability", True)
    if "JAX_ENABLE_PREEMPTION_SERVICE" not in os.environ:
        jax.config.update("jax_enable_preemption_service", False)
    first = job.process_id == 0 and not os.environ.get(BIND)
    jax.distributed.initialize(
        *job[:3],
        members[job.process_id].devices,
        cluster_detection_method="deactivate",
        initialization_timeout=int(max(_START, left)),
        coordinator_bind_address=_listens_at(job.address) if first else None,
    )


def _alone(devices: Sequence[int] | None) -> Hosts:
    """The only process, with the devices that it was told to take."""
    me = this_process(0)
    if devices is not None:
        _require_first()
        take_alone(devices)
        me = me._replace(devices=tuple(devices))
    return Hosts(0, (me,), LocalStore())


def _listens_at(address: str) -> str | None:
    """Where JAX's coordinator listens: at its address alone; None: everywhere."""
    at = endpoint(address, "coordinator_address")
    return None if stands_for_all(at) else str(at)


def _require_once() -> None:
    """Refuses a second join, also where this one would find nobody else."""
    if jax.distributed.is_initialized():
        raise RuntimeError(
            "join: this process has joined already, by hosts.join or by "
            "jax.distributed.initialize: call hosts.join() once, and pass on what it "
            "returns"
        )


def _require_first() -> None:
    """Refuses to join where JAX knows its devices already: those of one process."""
    if backends_are_initialized():
        raise RuntimeError(
            "join: JAX has been used in this process before hosts.join(), and knows "
            "only its own devices since: call hosts.join() first, before params are "
            "made, before jax.devices(), jnp.ones(...) or any other computation, also "
            "in the modules that the script imports"
        )


def _at_the_end(hosts: Hosts) -> Callable[[], None]:
    """How to leave; process 0, which holds the store, goes last, or others would abort.

    Its thread starts here and waits for the end: at exit Python 3.12 starts no thread.
    """
    store, ended = hosts.board, Event()
    if hosts.process_id or not isinstance(store, ServiceStore):
        return jax.distributed.shutdown

    def wait() -> None:
        ended.wait()
        store.wait_for_others(len(hosts.members))

    waiting = Thread(target=wait, daemon=True)
    waiting.start()

    def leave() -> None:
        ended.set()
        lost = any(key.endswith("/diagnosis") for key in store.read(WATCH))
        waiting.join(_LINGER_LOST if lost else _LINGER)
        jax.distributed.shutdown()

    return leave

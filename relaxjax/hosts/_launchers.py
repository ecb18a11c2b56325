"""What SLURM and Open MPI say in a process's environment: who it is, and where it sits.

JAX reads both too, and gives every process the one device of its number on its host.
That leaves devices idle where a host has one process, and is wrong where a launcher
shows each process its own devices alone. So the place is read here, and devices are
given when all have met (`_devices`).

Sources: srun(1), "OUTPUT ENVIRONMENT VARIABLES" (https://slurm.schedmd.com/srun.html);
the environment of Open MPI 5.0.11.
"""

import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import NamedTuple
from zlib import crc32

Env = Mapping[str, str]
_LAST_PORTS = 61440, 4096  # the first and how many: where JAX looks too
_NODES = re.compile(r"(\d+)(?:\(x(\d+)\))?")
# Who is which of how many, by PyTorch's launchers, and by MPICH and Intel MPI.
_OTHERS = (("RANK", "WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
SEEN = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


class Layout(NamedTuple):
    """Where a launcher has put a process.

    Attributes:
      local: its number on its host.
      here: how many processes the launcher has started on its host; None: unknown.
      visible: how many devices it sees; None: unknown.
      own: whether the launcher shows each process its own devices alone.
    """

    local: int
    here: int | None
    visible: int | None
    own: bool


class Launched(NamedTuple):
    """A process as its launcher describes it.

    Attributes:
      processes: number of processes.
      process_id: number of this process.
      layout: where it sits.
    """

    processes: int
    process_id: int
    layout: Layout


def launched(env: Env, *, needed: bool) -> Launched | None:
    """The launcher's layout for this process; None without a launcher that is known.

    Args:
      env: the environment.
      needed: whether nobody else has said who this process is. A launcher that says
        half of it is an error, or a line on standard error, only then.

    Raises:
      ValueError: it is needed, and half of it is missing.
    """
    if "OMPI_COMM_WORLD_RANK" in env:
        return _open_mpi(env)
    return _slurm(env, needed)


def is_open_mpi_5(env: Env) -> bool:
    """Whether Open MPI 5 or newer has started this process: it names no address."""
    return "OMPI_COMM_WORLD_RANK" in env and "OMPI_MCA_orte_hnp_uri" not in env


def coordinator(env: Env) -> str | None:
    """The address of process 0, for a process that has been launched; None: ask JAX.

    Raises:
      ValueError: Open MPI 5 on several hosts, and no mpi4py that JAX could ask.
    """
    if "OMPI_COMM_WORLD_RANK" not in env:
        job = f"{env['SLURM_JOB_ID']}.{env.get('SLURM_STEP_ID')}"
        return f"{_first_node(env['SLURM_STEP_NODELIST'])}:{_port(env, job)}"
    if not is_open_mpi_5(env):
        return None
    alone = env.get("OMPI_COMM_WORLD_LOCAL_SIZE") == env.get("OMPI_COMM_WORLD_SIZE")
    if alone and (job := env.get("PMIX_NAMESPACE")):
        return f"127.0.0.1:{_port(env, job)}"
    if find_spec("mpi4py") is None:
        raise ValueError(
            "join: Open MPI 5 says which process this is, and not where process 0 is: "
            "give its address and a free port there, as in mpirun -x "
            "JAX_COORDINATOR_ADDRESS=HOST:PORT, or install mpi4py"
        )
    return None


def require_alone(env: Env) -> None:
    """Refuses to be the only process where another launcher has started several.

    Raises:
      ValueError: torchrun, MPICH or Intel MPI say so; they name no address for JAX.
    """
    for rank, size in _OTHERS:
        number, count = _whole(env, rank), _whole(env, size)
        if number is not None and count and count > 1:
            raise ValueError(
                f"join: {size}={count} and {rank}={number} say that this is one of "
                f"{count} processes, and each would train alone: give "
                "JAX_COORDINATOR_ADDRESS (the host of process 0 and a free port "
                f"there), JAX_NUM_PROCESSES={count} and JAX_PROCESS_ID={number}, or "
                "JAX_NUM_PROCESSES=1 where alone is meant"
            )


def seen(env: Env) -> str:
    """The variable that says which devices this process sees, and its value."""
    return next((f"{name}={env[name]}" for name in SEEN if name in env), "")


def _open_mpi(env: Env) -> Launched:
    """Open MPI 4 and 5."""
    number, count, local, here = (
        _whole(env, f"OMPI_COMM_WORLD_{name}")
        for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    )
    if number is None or count is None:
        raise ValueError("join: OMPI_COMM_WORLD_SIZE is not set, and _RANK is")
    layout = Layout(local or 0, here, _visible(env), own=False)
    return Launched(count, number, layout)


def _slurm(env: Env, needed: bool) -> Launched | None:
    """A task of a step; None outside of one."""
    if "SLURM_JOB_ID" not in env:
        return None
    counts = "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"
    # A shell in an allocation for many is a step of one task.
    count = next((n for n in (_whole(env, name) for name in counts) if n), None)
    number, local = _whole(env, "SLURM_PROCID"), _whole(env, "SLURM_LOCALID")
    nodes = env.get("SLURM_STEP_NODELIST")
    if count and nodes and number is not None and local is not None:
        if count == 1 and needed:
            _say_alone(env)
        visible = _visible(env) or _whole(env, "SLURM_GPUS_ON_NODE")
        layout = Layout(local, _tasks_here(env), visible, _own(env))
        return Launched(count, number, layout)
    if count and count > 1 and needed:
        if nodes or number:
            raise ValueError(_half(env, count))
        _say_alone(env)
    return None


def _half(env: Env, count: int) -> str:
    names = "SLURM_STEP_NODELIST", "SLURM_PROCID", "SLURM_LOCALID"
    missing = ", ".join(name for name in names if not env.get(name))
    return (
        f"join: SLURM says that this is one of {count} tasks, and does not say all: "
        f"{missing} not set. Are variables lost, in a container perhaps? Pass all of "
        "SLURM's on, or give JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and "
        "JAX_PROCESS_ID"
    )


def _say_alone(env: Env) -> None:
    """Says that a process of an allocation for several tasks is the only one."""
    tasks = _whole(env, "SLURM_NTASKS") or 1
    if tasks > 1:
        sys.stderr.write(
            f"relaxjax: SLURM has {tasks} tasks for this job, and srun has not started "
            "them: this process trains alone; start it by srun\n"
        )


def _tasks_here(env: Env) -> int | None:
    """How many tasks of this step are on this node, of "2(x3),1" and its number."""
    node, text = _whole(env, "SLURM_NODEID"), env.get("SLURM_STEP_TASKS_PER_NODE", "")
    counts: list[int] = []
    for part in text.split(","):
        match = _NODES.fullmatch(part.strip())
        if match is None or node is None:
            return None
        counts += [int(match[1])] * min(int(match[2] or 1), node + 1)
        if len(counts) > node:
            return counts[node]
    return None


def _own(env: Env) -> bool:
    """Whether srun shows each task its own devices alone."""
    bind = env.get("SLURM_GPU_BIND", "")
    if bind.startswith("none"):
        return False
    asked = "SLURM_GPUS_PER_TASK" in env or "gpu" in env.get("SLURM_TRES_PER_TASK", "")
    on_node, visible = _whole(env, "SLURM_GPUS_ON_NODE"), _visible(env)
    part = bool(on_node and visible and visible < on_node)
    return asked or bool(bind) or part


def _first_node(nodes: str) -> str:
    """The first of "node[01-03,7],other", where task 0 is."""
    match = re.match(r"([^,\[]*)(?:\[(\w+)[^\]]*\]([^,\[]*))?", nodes)
    return "".join(part or "" for part in match.groups()) if match else nodes


def _port(env: Env, job: str) -> str:
    """A port that all processes of a job find by themselves."""
    first, count = _LAST_PORTS
    return env.get("JAX_COORDINATOR_PORT") or str(first + crc32(job.encode()) % count)


def _visible(env: Env) -> int | None:
    """How many devices the environment names; None: it names none."""
    text = seen(env).partition("=")[2]
    return len([name for name in text.split(",") if name.strip()]) or None


def _whole(env: Env, name: str) -> int | None:
    text = env.get(name, "").strip()
    return int(text) if text.isdecimal() else None

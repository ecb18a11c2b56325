"""Who this process is: by arguments, by JAX's variables, or by its launcher."""

from collections.abc import Mapping
from typing import NamedTuple

from jax._src.clusters import ClusterEnv

from relaxjax._core.foreign._job import COUNT
from relaxjax.hosts import _launchers as launchers

_NO_DEVICES = [0]  # so that JAX asks no launcher for devices: `_devices` gives them


class Job(NamedTuple):
    """A job of several processes, and this one's place in it.

    Attributes:
      address: "host:port" of process 0.
      processes: number of processes.
      process_id: number of this process.
      layout: where the launcher has put it; None: no launcher that says so.
    """

    address: str
    processes: int
    process_id: int
    layout: launchers.Layout | None


def described(
    address: str | None,
    count: int | None,
    number: int | None,
    *,
    wait: float,
    env: Mapping[str, str],
) -> Job | None:
    """The job of this process; None where it is the only one.

    Raises:
      ValueError: a part is missing, or wrong; a launcher that is not read here says
        that there are others.
    """
    address = address or env.get("JAX_COORDINATOR_ADDRESS")
    count = _number(count, "num_processes", COUNT, env)
    number = given = _number(number, "process_id", "JAX_PROCESS_ID", env)
    told = count
    here = launchers.launched(env, needed=None in (address, count, number))
    if here:
        count = here.processes if count is None else count
        number = here.process_id if number is None else number
    if count == 1:
        if given:
            _whole(address or "", count, given)  # refuses it
        if told is None:
            launchers.require_alone(env)
        return None
    method = None
    if address is None and here:
        address = launchers.coordinator(env)
        method = None if address or not launchers.is_open_mpi_5(env) else "mpi4py"
    address, count, number, _ = ClusterEnv.auto_detect_unset_distributed_params(
        address, count, number, _NO_DEVICES, method, max(1, int(wait))
    )
    if count == 1 or (address is None and count is None and number is None):
        launchers.require_alone(env)
        return None
    job = _whole(address, count, number)
    same = here and (here.processes, here.process_id) == (count, number)
    return job._replace(layout=here.layout if here and same else None)


def _whole(address: str | None, count: int | None, number: int | None) -> Job:
    missing = [
        f"{name} ({variable})"
        for name, variable, value in (
            ("coordinator_address", "JAX_COORDINATOR_ADDRESS", address),
            ("num_processes", COUNT, count),
            ("process_id", "JAX_PROCESS_ID", number),
        )
        if value is None
    ]
    if missing or address is None or count is None or number is None:
        raise ValueError(f"join: {' and '.join(missing)} not given; give all three")
    if not 0 <= number < count:
        raise ValueError(
            f"join: process_id={number} of num_processes={count}; it must be 0 to "
            f"{count - 1}"
        )
    return Job(address, count, number, None)


def _number(
    value: int | None, name: str, variable: str, env: Mapping[str, str]
) -> int | None:
    text = env.get(variable)
    if value is not None or text is None:
        return value
    if not text.strip().isdigit():
        raise ValueError(f"join: {variable}={text!r}; {name} must be a whole number")
    return int(text)

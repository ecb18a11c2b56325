"""Islands as actors of a Ray cluster: started on its nodes, and started again.

Each actor watches one island's process, as `supervise` does on one machine. A process
that is killed is started again by its actor. An actor that is killed takes its process
with it, and Ray starts it again, on another node if its own is lost, and repeats the
call that it was in: the island's next process joins with a new incarnation.

The actors end with the command that has started them, however that ends.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from relaxjax.islands.carriers._open import open_store
from relaxjax.islands.carriers._ray_store import RayStore, connected
from relaxjax.islands.carriers._relay import RELAY, relayed
from relaxjax.islands.common import _members as members
from relaxjax.islands.common._names import STARTED
from relaxjax.islands.started._members_of import drawn, mark_left, require_free
from relaxjax.islands.started._supervise import say, stopping, supervise

_POLL = 0.2
_PASSED_ON = ("JAX_", "XLA_", "RELAXJAX_", "PYTHONPATH")
"""How variables begin that the islands take over; others are those of their node."""


class Watcher:
    """The actor of one island."""

    def run(
        self,
        command: Sequence[str],
        name: str,
        carrier: str,
        env: Mapping[str, str],
        spares: bool,
    ) -> int:
        """Runs the island until it is done or given up; its status.

        The island's process calls the store by this actor, and needs no Ray.
        """
        with relayed(RayStore(carrier.removeprefix("ray:"))) as address:
            env = {**env, RELAY: address}
            return supervise(command, [name], carrier, env, spares=spares)


def supervise_on_ray(
    command: Sequence[str],
    names: Sequence[str],
    carrier: str,
    environment: Mapping[str, str] | None = None,
    *,
    spares: bool = False,
) -> int:
    """Runs a command on the nodes of a Ray cluster, once for each name.

    The program and the script must be at the same path on every node.

    Args:
      command: the program and its arguments.
      names: the islands' names.
      carrier: "ray:DIR", as in `relaxjax.islands.join`.
      environment: variables to set for all of them.
      spares: as in `relaxjax.islands.supervise`.

    Returns:
      0 if all are done; 1 if an island was given up; 128 + the number of the signal
      that has ended the run.

    Raises:
      ImportError: Ray is not installed.
      ValueError: there is no cluster, it has too few CPUs, or DIR cannot be written.
    """
    names = [members.check_name(name) for name in names]
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")  # lines of islands may be alike
    ray = connected(shows_output=True)
    options = _options(ray.cluster_resources(), len(names))
    store: Any = open_store(carrier)
    env = {k: v for k, v in os.environ.items() if k.startswith(_PASSED_ON)}
    own = drawn()
    env |= {**(environment or {}), "RAY_ADDRESS": _address(ray), STARTED: own}
    require_free(store, names, say)
    given_up, actors, calls = 0, list[Any](), dict[Any, str]()
    with stopping([]) as asked:
        try:
            for name in names:
                actors.append(ray.remote(Watcher).options(**options).remote())
                arguments = list(command), name, store.carrier, env, spares
                calls[actors[-1].run.remote(*arguments)] = name
            while calls and not asked:
                ready, _ = ray.wait([*calls], timeout=_POLL)
                for call in ready:
                    given_up += _status(ray, call, calls.pop(call)) != 0
        finally:
            for actor in actors:
                ray.kill(actor, no_restart=True)
            for name in calls.values():
                with suppress(OSError):
                    mark_left(store, name, own)
    return 128 + asked[0] if asked else int(given_up > 0)


def _options(resources: Mapping[str, float], count: int) -> dict[str, Any]:
    """Options of an actor; a GPU each, if there are as many."""
    cpus = int(resources.get("CPU", 0))
    if cpus < count:
        raise ValueError(
            f"islands: {count} islands need a CPU each, the Ray cluster has {cpus}: "
            f"ask for fewer (-n {max(cpus, 1)}), or add nodes (`ray start "
            "--address=HEAD:6379`, --num-cpus for more on one node)"
        )
    return {
        "num_cpus": 1,
        "num_gpus": int(resources.get("GPU", 0) >= count),
        "max_restarts": -1,
        "max_task_retries": -1,
        "scheduling_strategy": "SPREAD",
    }


def _address(ray: Any) -> str:
    return ray.get_runtime_context().gcs_address


def _status(ray: Any, call: Any, name: str) -> int:
    """What an actor's call came to; an error of the call is said."""
    try:
        return ray.get(call)
    except ray.exceptions.RayError as error:
        say(f"{name}: its actor has failed: {str(error).strip().splitlines()[-1]}")
        return 1

"""A folder behind an actor of Ray: for machines of one cluster that share no disk.

    ray:DIR      the folder DIR on the node where the run began

The actor has the folder's name, is detached from who made it, stays on that node, and
is started again by Ray when it dies: what was committed is on the disk. Everything else
is as with a folder that all see: any island merges, and the log is the commit. A call
that nobody has answered is an `OSError`, and islands train on until the next one.

What Ray sends between its processes is its own, and must be trusted; what islands read
is checked as ever.

Cost: a call of the actor for each operation, but for small files that have not changed
(`relaxjax.islands.carriers._remembered`); bytes pass through the object store.
"""

import errno
from importlib import import_module
from pathlib import Path
from typing import Any

from relaxjax.islands.carriers._folder import Folder
from relaxjax.islands.carriers._remembered import Changes, Recorded
from relaxjax.islands.carriers._store import ByCalls

_NAMESPACE = "relaxjax-islands"


class Keeper:
    """The actor: a folder whose errors travel as values, and which keeps a journal."""

    def __init__(self, path: str):
        self._folder = Recorded(Folder(path))

    def call(self, verb: str, *arguments: Any) -> tuple[bool, Any]:
        """Whether it went well, and what came of it; else the parts of an `OSError`."""
        try:
            return True, getattr(self._folder, verb)(*arguments)
        except OSError as error:
            return False, (error.errno, error.strerror, error.filename)


class RayStore(ByCalls):
    """A store whose files an actor keeps.

    Attributes:
      place: "ray:" and the folder's absolute path.
      carrier: the same.
    """

    def __init__(self, path: str):
        """Finds the actor, or starts it on this node.

        Raises:
          ImportError: Ray is not installed.
          ValueError: there is no cluster, or the folder cannot be written.
        """
        self._ray = ray = connected()
        name = str(Path(path).absolute())
        self.place = self.carrier = f"ray:{name}"
        node = ray.get_runtime_context().get_node_id()
        here = import_module("ray.util.scheduling_strategies")
        self._keeper = (
            ray.remote(Keeper)
            .options(
                name=name,
                namespace=_NAMESPACE,
                get_if_exists=True,
                lifetime="detached",
                max_restarts=-1,
                num_cpus=0,
                scheduling_strategy=here.NodeAffinitySchedulingStrategy(node, False),
            )
            .remote(name)
        )
        self.names("tmp")

    def changes(self, journal: str, count: int) -> Changes:
        """What has changed since a journal had that many changes."""
        return self._call("changes", journal, count)

    def _call(self, verb: str, name: str, *rest: Any) -> Any:
        errors = self._ray.exceptions
        try:
            went_well, result = self._ray.get(
                self._keeper.call.remote(verb, name, *rest)
            )
        except errors.RayTaskError:
            raise
        except errors.RayError as error:
            why = f"the actor does not answer ({type(error).__name__})"
            raise OSError(errno.EHOSTUNREACH, why, self.place) from error
        if went_well:
            return result
        raise OSError(*result)


def connected(shows_output: bool = False) -> Any:
    """Ray, connected to a cluster; it may show what actors print."""
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise ImportError(
            'islands: carrier="ray:DIR" needs Ray: pip install "relaxjax[ray]"'
        ) from error
    if not ray.is_initialized():
        try:
            ray.init(address="auto", logging_level="ERROR", log_to_driver=shows_output)
        except ConnectionError as error:
            raise ValueError(
                f"islands: no Ray cluster can be reached ({error}): `ray start --head` "
                "begins one here, RAY_ADDRESS names one elsewhere, and RAY_AUTH_TOKEN "
                "is its token, if it has one"
            ) from error
    return ray

"""Orbax keeps the folders: a save is whole or not there, old ones go, threads write."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
from etils import epath
from orbax.checkpoint import future

from relaxjax.checkpoint._files import write
from relaxjax.checkpoint._snapshot import Snapshot

ITEM = "state"


class Handler(ocp.AsyncCheckpointHandler):
    """Writes a snapshot's files in a thread of Orbax's."""

    async def async_save(self, directory: epath.Path, args: "Write") -> list[Any]:
        """Begins to write."""

        async def commit() -> None:
            write(Path(directory), args.found, args.told)

        return [future.CommitFutureAwaitingContractedSignals(commit())]

    def save(self, directory: epath.Path, args: "Write") -> None:
        """Writes at once."""
        write(Path(directory), args.found, args.told)

    def restore(self, directory: epath.Path, args: Any = None) -> Any:
        """Not used: files are read without Orbax."""
        raise NotImplementedError


@ocp.args.register_with_handler(Handler, for_save=True, for_restore=True)
@dataclass
class Write(ocp.args.CheckpointArgs):
    """What a save is given.

    Attributes:
      found: the state, on the host.
      told: what else to put down.
    """

    found: Snapshot
    told: Mapping[str, Any]


def manager_of(
    directory: Path, keep: int | None, processes: tuple[int, ...], all_of_them: bool
) -> ocp.CheckpointManager:
    """Orbax's manager of a folder that is there.

    Args:
      directory: absolute.
      keep: number of checkpoints; None: all.
      processes: that save together.
      all_of_them: whether those are all there are.
    """
    among = ocp.options.MultiprocessingOptions(
        primary_host=min(processes),
        active_processes=None if all_of_them else set(processes),
        barrier_sync_key_prefix=None if all_of_them else f"from{min(processes)}",
    )
    options = ocp.CheckpointManagerOptions(
        max_to_keep=keep,
        create=False,
        cleanup_tmp_directories=True,
        async_options=ocp.options.AsyncOptions(create_directories_asynchronously=False),
        multiprocessing_options=among,
    )
    handlers = {ITEM: Handler()}
    return ocp.CheckpointManager(
        directory, item_names=(ITEM,), item_handlers=handlers, options=options
    )

"""Runs each island's own program again, one after the other, on one machine.

The command is the one that trained, in a process for each member of the log. What comes
to it is for `relaxjax.islands.one._past` to say; here its contributions are collected,
and those that it has not made again are named.

Cost: the steps of all processes that have contributed, up to their last contribution.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from relaxjax.islands.carriers._open import CARRIER
from relaxjax.islands.carriers._store import Store
from relaxjax.islands.common._names import NAME
from relaxjax.islands.one._past import MEMBER, RESULT, Compared, Stay, read, stays

_LINES = 5  # of what a process has printed that has failed


def rerun(
    store: Store,
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> Iterator[Compared]:
    """Every contribution of the log, made again by the program that made it.

    Args:
      store: the run, which has kept its contributions.
      command: the program and its arguments, as they were.
      environment: variables to set for all of them.

    Yields:
      How each contribution compares, member by member in order of versions.

    Raises:
      DamagedFile: a line of the log.
      OSError: the program cannot be started.
    """
    env = {**os.environ, **(environment or {}), CARRIER: store.carrier}
    for stay in stays(store):
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "result"
            yield from _one(command, stay, result, env | {RESULT: str(result)})


def _one(
    command: Sequence[str], stay: Stay, result: Path, env: dict[str, str]
) -> Iterator[Compared]:
    result.touch()
    member = str(stay.member)
    env |= {MEMBER: member, NAME: stay.member.name}
    done = subprocess.run(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    found = {compared.version: compared for compared in read(result)}
    said = " | ".join(done.stdout.splitlines()[-_LINES:])
    why = f"the program ended with status {done.returncode} without it: {said}"
    for version in sorted(stay.contributed):
        yield found.get(version, Compared(version, member, False, float("inf"), why))

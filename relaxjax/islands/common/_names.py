"""Names of islands: given by the command, or by a number of the cluster's."""

import os

NAME = "RELAXJAX_ISLAND"
STARTED = "RELAXJAX_STARTED"  # a word of the command and one of each process
_NUMBERS = ("SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX")


def names(count: int) -> list[str]:
    """Names of the islands that a command starts, in a task of an array or a pod too.

    Example:
      >>> from relaxjax.islands.common._names import names
      >>> names(2)
      ['island-0', 'island-1']
    """
    own = _numbered()
    if own and count == 1:
        return [own]
    return [f"{own or 'island'}-{number}" for number in range(count)]


def own_name() -> str:
    """The name that a command, SLURM or Kubernetes has given this process.

    Raises:
      ValueError: none of them has.
    """
    if name := os.environ.get(NAME) or _numbered():
        return name
    raise ValueError(
        "islands: name is missing: give one for each island, the same after a restart, "
        f"or set {NAME}; `relaxjax islands` does"
    )


def _numbered() -> str | None:
    """By the number that SLURM or Kubernetes has given this task or pod."""
    found = [os.environ[x] for x in _NUMBERS if os.environ.get(x)]
    return f"island-{found[0]}" if found else None

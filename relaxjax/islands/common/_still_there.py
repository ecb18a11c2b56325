"""Whether the run that a process has joined is still in its folder.

A folder that was removed, moved or unmounted is not to be filled again from the middle
of a run: who joins there would begin anew, beside those who go on. So a process looks
with each heartbeat, and before it writes what others go by:

    neither run.json nor log/  the run is gone: this process ends with status 77
    run.json alone is missing  it is written again, as this process has it
    only newer lines           it has slept while the log was cut short, and goes on
    its own line is missing    somebody has removed it: it is written again

Cost: two small files are read with each heartbeat and merge.
"""

from relaxjax.islands.carriers._foreign import is_there, numbered
from relaxjax.islands.carriers._store import FILE, Store
from relaxjax.islands.common import _log as log
from relaxjax.islands.common._agreed import Agreed

GONE = 77  # exit status


class RunGone(RuntimeError, SystemExit):
    """The folder of the run was removed while this process trained.

    Where nobody catches it, the process ends with status 77 and without a traceback.
    """

    def __init__(self, place: str, version: int):
        super().__init__(
            f"islands: the run in {place} is gone: this process knows merge {version}, "
            "and there is nothing now. Put the folder back, or mount it, and start the "
            "islands again; in an empty folder they begin a new run"
        )
        self.code = GONE


def require_run(store: Store, run: Agreed, version: int) -> bool:
    """Whether the log still has a version, which this process knows.

    Raises:
      RunGone: it has none at all.
    """
    has_settings = is_there(store, FILE)
    has_line = is_there(store, log.file_of(version))
    if not has_settings and not numbered(store.names(log.FOLDER)):
        raise RunGone(store.place, version)
    if not has_settings:
        run.agree(store)
    return has_line

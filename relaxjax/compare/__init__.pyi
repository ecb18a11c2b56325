# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.compare.page._results import Results as Results
from relaxjax.compare.study._identity import start as start
from relaxjax.compare.study._identity import task_digest as task_digest
from relaxjax.compare.study._study import Study as Study

__all__ = ["Results", "Study"]

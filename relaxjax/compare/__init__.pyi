# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.compare._results import Results as Results
from relaxjax.compare._study import Study as Study

__all__ = ["Results", "Study"]

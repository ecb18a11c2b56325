"""Two sites: the way to the target, and who is first on which link."""

from matplotlib.figure import Figure

from relaxjax.compare import Results
from relaxjax.compare.kept._summary import Summary, summary
from relaxjax.compare.page import _figures, _map
from scripts.tables.points import STUDIES

SOURCES = (STUDIES / "two-sites",)


def _found() -> Summary:
    results = Results(*SOURCES)
    return summary(results.study, results.records())


def seconds() -> Figure:
    """Validation metric against predicted seconds on the slowest link."""
    found = _found()
    (axis,) = (x for x in _figures.axes_of(found) if x.name == "seconds_1")
    return _figures.curves(found, axis)


def winners() -> Figure:
    """Who reaches the target first, over bandwidth and latency."""
    found = _found()
    return _map.winners_map(found, found.study["map"])

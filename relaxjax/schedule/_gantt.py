"""A Gantt chart of a timeline: one row per track, colors by name.

Cost: O(spans).
"""

from collections.abc import Sequence
from os import PathLike

from relaxjax._core._tree import natural_key
from relaxjax.schedule._engine import Span

_ROWS = 40


def draw_gantt(path: str | PathLike[str], name: str, spans: Sequence[Span]) -> None:
    """Writes a PNG; of more than 40 tracks the first 40.

    Args:
        path: of the file.
        name: the title.
        spans: of the timeline.

    Raises:
        ImportError: matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            'drawing a timeline needs matplotlib: pip install "relaxjax[cli]"'
        ) from error
    tracks = sorted({span.track for span in spans}, key=natural_key)[:_ROWS]
    row = {track: i for i, track in enumerate(tracks)}
    color = {
        n: f"C{i % 10}" for i, n in enumerate(dict.fromkeys(s.name for s in spans))
    }
    figure = Figure(figsize=(11, 1.2 + 0.35 * len(tracks)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for track in tracks:
        own = [span for span in spans if span.track == track]
        axes.broken_barh(
            [(span.start, span.end - span.start) for span in own],
            (row[track] - 0.4, 0.8),
            facecolors=[color[span.name] for span in own],
            edgecolor="white",
            linewidth=0.3,
        )
    axes.set_yticks(range(len(tracks)), tracks)
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.set_title(name)
    figure.savefig(path, dpi=120, format="png")

"""The picture of a timeline: a fitting unit, a color a kind, a number a transfer."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from relaxjax.schedule import Cluster, Cost, Graph, best, dear, ordered, simulate
from relaxjax.schedule.simulator import _gantt as gantt
from relaxjax.schedule.simulator._timeline import Span

LAYERS = {f"layer{i}/w": 1e-4 * n for i, n in enumerate((2, 2, 2, 2, 9))}
NEEDS = {
    f"f{i}": (2e-4, [f"layer{i}/w", *([f"f{i - 1}"] if i else [])]) for i in range(5)
}
SENDS = {name: (seconds, ["f4"]) for name, seconds in LAYERS.items()}


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """Draws a timeline and returns its figure."""
    figures = []
    save = Figure.savefig

    def keep(self, *args, **kwargs):
        figures.append(self)
        save(self, *args, **kwargs)

    monkeypatch.setattr(Figure, "savefig", keep)

    def draw(run):
        run.save_png(tmp_path / "x.png")
        return figures[-1]

    return draw


@pytest.fixture
def graph():
    return Graph(recvs=LAYERS, ops=NEEDS, sends=SENDS)


@pytest.mark.parametrize(
    ("seconds", "unit", "word"),
    [
        (90.0, 1.0, "seconds"),
        (1.0, 1.0, "seconds"),
        (0.0415, 1e-3, "milliseconds"),
        (2e-4, 1e-6, "microseconds"),
        (1e-9, 1e-6, "microseconds"),
        (0.0, 1e-6, "microseconds"),
    ],
)
def test_the_unit_suits_the_duration(seconds, unit, word):
    assert gantt.unit_of(seconds) == (unit, word)


def test_a_timeline_has_units_a_legend_and_a_key(graph, drawn):
    run = simulate(graph, ordered("best", best(graph)), Cluster(workers=2))
    figure = drawn(run)
    axes, key = figure.axes
    assert axes.get_xlabel() == "milliseconds"
    assert axes.get_xlim() == pytest.approx((0, 1e3 * run.seconds))
    assert [label.get_text() for label in axes.get_yticklabels()] == sorted(run.tracks)
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == [
        "pull parameters",
        "compute",
        "push gradients",
    ]
    lines = key.texts[0].get_text().splitlines()[1:]
    assert [line.split()[:2] for line in lines] == [
        [str(number), name] for number, name in enumerate(best(graph), start=1)
    ]
    pulled = {
        span.name: span.nbytes for span in run.spans if span.track == "worker 1 in"
    }
    nbytes = pulled[best(graph)[0]]
    assert lines[0].endswith(f"{nbytes / 1e3:.3g} kB")


def test_bars_have_what_fits(graph, drawn):
    figure = drawn(simulate(graph, ordered("best", best(graph))))
    texts = [text.get_text() for text in figure.axes[0].texts]
    numbers = {text.split()[0] for text in texts if text[:1].isdigit()}
    assert numbers == {"1", "2", "3", "4", "5"}
    assert any("layer4/w" in text for text in texts)
    assert "f0" in texts
    assert "" not in texts


def test_collectives_have_a_color_of_their_own(graph, drawn):
    run = simulate(graph, dear(graph, lambda b: Cost(2, b)), Cluster(workers=2))
    figure = drawn(run)
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert legend == ["compute", "collective"]
    assert len(figure.axes[1].texts[0].get_text().splitlines()) == 1 + len(LAYERS)


def test_long_names_end_in_the_key_and_leave_room_for_bars(drawn):
    name = "params/TransformerBlock_3/SelfAttention_0/query/kernel"
    figure = drawn(simulate(Graph(recvs={name: 1e-3}, ops={"f": (1e-3, [name])})))
    axes, key = figure.axes
    line = key.texts[0].get_text().splitlines()[1]
    assert line.split()[1] == f"..{name[-22:]}"
    left, right = axes.get_position().intervalx
    assert right - left > 0.45


def test_computation_in_the_scope_of_a_transfer_has_none_of_its_bytes():
    """What XLA makes of a collective, such as a copy of its result, has its name."""
    spans = [
        Span("worker 0 compute", "send/all_to_all", 0, 1, 0, 0, 0),
        Span("worker 0 network", "send/all_to_all", 1, 2, 4096, 0, 0),
    ]
    assert list(gantt._key(spans, {"send/all_to_all": 1}))[1].endswith("4.1 kB")


def test_nothing_to_draw(drawn):
    run = simulate(Graph(recvs={}, ops={}))
    assert drawn(run).axes


def test_pieces_of_a_transfer_are_one_bar(graph):
    whole = simulate(graph, ordered("best", best(graph)))
    cut = simulate(graph, ordered("best", best(graph)), Cluster(segment_bytes=10_000))
    assert len(cut.spans) > len(whole.spans)
    few, many = (sorted(gantt.bars_of(run.spans, 1.0)) for run in (whole, cut))
    for bar, other in zip(few, many, strict=True):
        assert (bar.track, bar.kind, bar.name) == (other.track, other.kind, other.name)
        assert other[3:] == pytest.approx(bar[3:])


def test_every_link_has_its_direction():
    kinds = {
        "worker 0 in": "pull",
        "server 1 out": "pull",
        "worker 12 out": "push",
        "server 0 in": "push",
        "worker 0 compute 2": "compute",
        "network": "network",
        "worker 0 network": "network",
    }
    assert {track: gantt._kind(track) for track in kinds} == kinds


def linear(color):
    c = np.array(to_rgb(color))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


# Viénot, Brettel and Mollon 1999: linear RGB as seen without red or green cones.
SIGHT = {
    "normal": np.eye(3),
    "protan": [[0.1124, 0.8876, 0], [0.1124, 0.8876, 0], [0.0040, -0.0040, 1]],
    "deutan": [[0.2928, 0.7072, 0], [0.2928, 0.7072, 0], [-0.0223, 0.0223, 1]],
}


@pytest.mark.parametrize("sight", SIGHT)
def test_colors_differ_for_everyone(sight):
    colors = [color for _, color, _ in gantt._KINDS.values()]
    seen = [np.array(SIGHT[sight]) @ linear(color) for color in colors]
    for first, second in itertools.combinations(seen, 2):
        assert np.abs(first - second).max() > 0.1


def luminance(color):
    return np.array([0.2126, 0.7152, 0.0722]) @ linear(color) + 0.05


def test_letters_can_be_read():
    """The contrast that WCAG 2 asks of small text."""
    for _, color, ink in gantt._KINDS.values():
        dark, light = sorted([luminance(color), luminance(ink)])
        assert light / dark > 4.5

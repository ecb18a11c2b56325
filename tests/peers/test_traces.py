"""A timeline's trace, read by HolisticTraceAnalysis: names, times, bytes, tracks."""

import importlib
import warnings

import numpy as np
import pytest

from relaxjax import schedule
from tests.schedule.simulator.test_timeline import GRAPH, UNIT

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    parser = pytest.importorskip("hta.common.trace_parser")
    config = importlib.import_module("hta.configs.parser_config").ParserConfig


@pytest.mark.filterwarnings("ignore")  # its own, of pandas
def test_each_span_comes_back(tmp_path):
    order = schedule.ordered("tac", schedule.tac(GRAPH))
    run = schedule.simulate(GRAPH, order, schedule.Cluster(2, 2, UNIT), steps=2)
    path = tmp_path / "trace.json"
    run.save(path)
    how = config.get_default_cfg()
    _, table, symbols = parser.parse_trace_dataframe(str(path), how)
    names = symbols.sym_table
    columns = [table[key].tolist() for key in ("name", "cat", "ts", "dur", "bytes")]
    read = sorted(
        (names[name], names[kind], start, length, max(0, size))
        for name, kind, start, length, size in zip(*columns, strict=True)
    )
    made = sorted(
        (
            span.name,
            "transfer" if span.nbytes else "compute",
            1e6 * span.start,
            1e6 * (span.end - span.start),
            round(span.nbytes),
        )
        for span in run.spans
    )
    assert [row[:2] for row in read] == [row[:2] for row in made]
    np.testing.assert_allclose([x[2:] for x in read], [x[2:] for x in made])
    assert table["tid"].nunique() == len(run.tracks)

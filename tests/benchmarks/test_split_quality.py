"""Codes inside a split model: rows of the benchmark, and one short run of each."""

import numpy as np
import pytest

from benchmarks.training.split_quality import SPLITS, row_of, split_quality
from relaxjax.activations import SentBytes


def test_losses_are_held_against_the_same_seeds():
    sent = SentBytes(forward=8, backward=4)
    uncoded = row_of("tensor", "as it is", [(3.0, 4.0, sent), (3.1, 2.0, sent)], None)
    assert uncoded["over by seed, %"] == [0, 0]
    coded = row_of("tensor", "4 bits", [(3.5, 4.4, sent), (3.1, 1.9, sent)], uncoded)
    np.testing.assert_allclose(coded["over by seed, %"], [10, -5])
    assert coded["over uncoded, %"] == pytest.approx(2.5)
    assert (coded["forward"], coded["backward"]) == (8, 4)
    assert coded["trained"] == [3.5, 3.1]


@pytest.mark.slow
def test_each_example_is_measured(tmp_path):
    result = split_quality(seeds=1, steps=2, out=str(tmp_path))
    assert {row["split"] for row in result["rows"]} == {*SPLITS}
    assert all(4 < row["held out"][0] < 8 for row in result["rows"])
    assert (tmp_path / "split-quality.json").exists()

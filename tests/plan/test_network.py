"""Networks as data: what is refused, and what is kept as JSON."""

import json
from typing import Any

import numpy as np
import pytest

from relaxjax import plan
from relaxjax.schedule import Link


def test_saved_and_loaded(tmp_path):
    network = plan.Network(
        workers=8,
        per_host=4,
        link=Link(1e-3, 1e8),
        psum=Link(2e-3, 9e7),
        codec={"quantize8": 2e9, "": 1e9},
        overlap=False,
    )
    network.save(tmp_path / "network.json")
    assert plan.Network.load(tmp_path / "network.json") == network


def test_numbers_of_numpy_and_an_endless_rate_are_kept(tmp_path):
    latency: Any = np.float32(2**-10)
    link = Link(latency, np.float64(2**30))
    network = plan.Network(workers=2, link=link, inside=Link(0.0, np.inf))
    network.save(tmp_path / "network.json")
    assert plan.Network.load(tmp_path / "network.json") == network


def test_slow_codecs_are_slower_where_none_was_measured():
    network = plan.Network(workers=2)
    assert network.codec_rate("codebook4+ef14") < network.codec_rate("quantize4") / 5
    assert network.codec_rate("quantize4") == network.codec_rate("")


def test_codecs_by_name():
    network = plan.Network(workers=2, codec={"sign": 3e9, "": 1e9})
    assert network.codec_rate("sign+ef14") == 3e9
    assert network.codec_rate("top_k") == 1e9


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "cannot be read as a network"),
        ("[]", "is not a network"),
        ('{"workers": 4, "wrokers": 1}', r"unknown fields \['wrokers'\]"),
        ('{"workers": 4, "link": 3}', "link must be"),
        ('{"workers": 4, "link": {"latency": 1, "width": 3}}', "link must be"),
        ('{"workers": 0}', "workers=0 must be"),
    ],
)
def test_unreadable_files(tmp_path, text, says):
    path = tmp_path / "network.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=says):
        plan.Network.load(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(ValueError, match="cannot be read as a network"):
        plan.Network.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"workers": 6, "per_host": 4}, "do not fill hosts"),
        ({"workers": 2.0}, "workers=2.0 must be a whole number"),
        ({"workers": 4, "codec": {"": 0}}, r"codec\[''\]=0 must be"),
        ({"workers": 4, "codec": {"": float("nan")}}, "must be a finite number"),
    ],
)
def test_nonsense(told, says):
    with pytest.raises(ValueError, match=says):
        plan.Network(**told)


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, float("nan")])
def test_nonsense_links(bandwidth):
    with pytest.raises(ValueError, match="bandwidth must be > 0"):
        plan.Network(workers=2, link=Link(0.0, bandwidth))


def test_the_file_is_json_that_a_person_can_write(tmp_path):
    path = tmp_path / "network.json"
    told = {"workers": 16, "link": {"latency": 5e-5, "bandwidth": 1.25e9}}
    path.write_text(json.dumps(told))
    assert plan.Network.load(path).hosts == 16


@pytest.mark.slow
def test_a_window_for_each_round_trip_caps_the_rate():
    """At 50 ms a stream of 6 MiB carries half of 1 Gbit/s; at 0.05 ms all of it."""
    window = 6 * 2**20
    far, near = (Link(late, 1.25e8, window) for late in (0.05, 5e-5))
    assert far.rate == window / 0.1
    assert near.rate == Link(0.05, 1.25e8).rate == Link(0.0, 1.25e8, 1).rate == 1.25e8
    assert far.seconds(2 * window, messages=3) == pytest.approx(3 * 0.05 + 0.2)
    model = plan.Model.of_size(125_000_000, compute=0.3)
    ddp = [
        plan.rank(model, plan.Network(workers=8, link=link), bucket_bytes=2**30)
        for link in (far, Link(0.05, 1.25e8))
    ]
    slow, fast = (
        next(row.seconds for row in r.rows if row.label == "all_reduce") for r in ddp
    )
    assert slow - 0.3 > 1.8 * (fast - 0.3)


@pytest.mark.parametrize("window", [0, -1.0, "wide"])
def test_windows_that_carry_nothing(window):
    with pytest.raises((ValueError, TypeError), match="window must be"):
        Link(window=window)

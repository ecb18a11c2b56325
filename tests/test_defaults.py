"""What public functions take where nothing is said, alike in all of them."""

import importlib
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import relaxjax
from relaxjax.local_updates.common._local_steps import ExchangeSpec

ROOMS = json.loads(Path(__file__).with_name("public_names.json").read_text())
SHARED = {
    "algorithm": "auto",
    "bucket_bytes": 8 * 2**20,
    "compressor": None,
    "every": 1,
    "op": "mean",
    "order": None,
    "seed": 0,
    "specs": None,
}
OWN = {
    "gossip": {"consensus_step_size": 0.4},
    "parameter_server": {"staleness": 0, "compensation": 0.0, "servers": None},
}


def defaults_of(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def test_the_same_knob_has_the_same_default():
    found = 0
    for room in ("relaxjax", "relaxjax.ps"):
        module = importlib.import_module(room)
        for name in filter(str.islower, ROOMS[room]):
            function = getattr(module, name)
            knobs = defaults_of(function) if inspect.isfunction(function) else {}
            for knob in SHARED.keys() & knobs.keys():
                assert knobs[knob] == SHARED[knob], f"{room}.{name}: {knob}"
                found += 1
    assert found > 100


def test_knobs_of_one_method():
    for name, expected in OWN.items():
        knobs = defaults_of(getattr(relaxjax, name))
        assert {knob: knobs[knob] for knob in expected} == expected


def test_what_merges_outer_gradients_is_an_all_reduce_as_it_is():
    theirs = defaults_of(relaxjax.all_reduce)
    spec = ExchangeSpec("caller", "data")._asdict()
    assert {knob: spec[knob] for knob in spec.keys() & theirs.keys()} == {
        knob: theirs[knob] for knob in spec.keys() & theirs.keys()
    }
    assert spec["merge"] == defaults_of(relaxjax.diloco)["merge"] == "mean"

"""The benchmarks of params in host memory, with a small model."""

import json
from pathlib import Path
from statistics import fmean

import jax
import pytest
from typer.testing import CliRunner

from benchmarks import __main__ as _main
from benchmarks import measure as _measure
from benchmarks.programs import host_copies as _host_copies
from benchmarks.programs import host_params as _host_params
from benchmarks.programs import overlap_models as _overlap_models
from relaxjax.schedule import Link


def small():
    return _overlap_models.perceptron(layers=3, width=8, rows=4)


@pytest.mark.long
def test_host_params(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(_host_params, "_transformer", lambda _: small())
    result = _host_params.host_params(
        rounds=5, random_orders=2, bucket_mb=1e-6, out=str(tmp_path)
    )
    assert json.loads((tmp_path / "host_params.json").read_text()) == result
    assert set(result["modes"]) == {"inference", "training"}
    assert result["conditions"]["nbytes"] == 3 * 8 * 8 * 4
    for found in result["modes"].values():
        seconds = found["seconds"]
        assert {len(own) for own in seconds.values()} == {5}
        randoms = zip(seconds["random 0"], seconds["random 1"], strict=True)
        expected = _measure.ratio([*map(fmean, randoms)], seconds["tac"])
        assert found["gain"]["tac"] == expected._asdict()
        # On CPU nothing is copied: computation alone, as measured.
        (base,) = {round(s, 12) for s in found["predicted"].values()}
        assert base == pytest.approx(sorted(seconds[_host_params.ON_DEVICE])[2])
    assert "no gain is to be expected" in capsys.readouterr().out


def test_predictions_where_memories_differ():
    """256 bytes at 256 bytes per second: 3 seconds, and next to no computation."""
    training = small()
    params, batch = _host_params._arrays((training.params, training.batch))
    setting = _host_params.CopySetting(training, params, batch, Link(0.0, 256.0), False)
    found = _host_params._measured("inference", setting, 5, 1, 1)
    assert found["orders"]["layer"] == ["layer0", "layer1", "layer2"]
    assert found["predicted"]["layer"] == pytest.approx(3.0, rel=0.05)
    assert found["predicted"]["layer"] < found["predicted"]["reversed"]


def test_host_copies_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(_host_copies, "missing", lambda: "no plugin")
    found = CliRunner().invoke(_main.app, ["host-copies", "--out", str(tmp_path)])
    assert found.exit_code == 2
    assert "no plugin" in found.stderr


def test_host_copies(monkeypatch, tmp_path):
    """As if every program were this one: a copy of 1000 bytes under no work."""
    text = """HloModule one, is_scheduled=true
ENTRY %main (x: f32[250]) -> f32[250] {
  %x = f32[250]{0:S(5)} parameter(0)
  %s = (f32[250]{0}, f32[250]{0:S(5)}, u32[]) copy-start(%x)
  ROOT %d = f32[250]{0} copy-done(%s)
}"""
    seen, profiles = [], set()

    def compiled(fn, params, batch, options=None):
        del batch
        seen.append(jax.typeof(params["layer0"]).memory_space.name)
        profiles.update(Path(path).read_text() for path in (options or {}).values())
        return text

    monkeypatch.setattr(_host_copies, "missing", lambda: None)
    monkeypatch.setattr(_host_copies, "host_program_text", compiled)
    monkeypatch.setattr(_host_copies, "transformer", small)
    monkeypatch.setattr(_host_copies, "SIZES", [1, 9])
    options = {"gigabytes": 1e-6, "microseconds": 1e6, "out": str(tmp_path)}
    result = _host_copies.host_copies(random_orders=1, **options)
    assert seen == ["Host"] * 12 * 3
    costs = 'costs { name: "s" cost_us: 2000000.0000 }\n', 'costs { name: "d" cost_us: '
    assert profiles == {f"{''.join(costs)}0.0000 }}\n"}
    names = ["layer", "tac", "tic", "best", "reversed", "random 0"]
    told = [f"{name}, profiled" for name in names]
    assert [row["order"] for row in result["rows"]] == 2 * names + 2 * told
    assert {row["exposed"] for row in result["rows"]} == {2.0}
    assert (tmp_path / "host_copies.json").exists()

"""The benchmarks run, and what they report follows from what they measured."""

import json
import os
import subprocess
import sys

import jax
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import relaxjax
from benchmarks import __main__ as _main
from benchmarks import measure as _measure
from benchmarks import models as _models
from benchmarks import report as _report
from benchmarks.micro import algorithms as _algorithms
from benchmarks.micro import bytes as _bytes
from benchmarks.micro import codecs as _codecs
from benchmarks.micro import emulation as _emulation
from benchmarks.micro import fusion as _fusion
from benchmarks.micro import growth as _growth
from benchmarks.micro import low_rank as _low_rank
from benchmarks.micro import overhead as _overhead
from benchmarks.micro import payloads as _payloads
from benchmarks.micro import ring as _ring
from benchmarks.programs import gpu_program as _gpu_program
from benchmarks.programs import overlap as _overlap
from benchmarks.programs import overlap_models as _overlap_models
from benchmarks.report import Rounds, Run, Workers, benchmark
from relaxjax.cli.common import _devices
from relaxjax.workers import _startup_agreement as _agree
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers._to_workers import workers_of


def test_ratio_of_pairs():
    r = _measure.ratio([2.0, 4.0, 6.0, 8.0, 30.0], [1.0, 2.0, 3.0, 4.0, 3.0])
    assert (r.median, r.low, r.high, r.pairs) == (2.0, 2.0, 10.0, 5)
    assert str(r) == "2.000 [2.000, 10.000]"


def test_interval_covers_the_median_in_95_of_100():
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(400):
        r = _measure.ratio(np.exp(rng.normal(size=21)).tolist(), [1.0] * 21)
        hits += r.low <= 1.0 <= r.high
    assert hits >= 372  # 93 %: the interval is at least 95 % in the long run


def test_runs_take_turns():
    calls = []
    runs = {name: lambda name=name: calls.append(name) for name in "ab"}
    seconds = _measure.interleaved(runs, 3)
    assert "".join(calls) == "aabb" + "ba" + "ab" + "ba"
    assert {name: len(s) for name, s in seconds.items()} == {"a": 3, "b": 3}


def test_resnet50_has_161_tensors():
    shapes = _fusion.resnet50_shapes()
    assert len(shapes) == 161
    assert sum(int(np.prod(s)) for s in shapes.values()) == 25_557_032


@pytest.mark.slow
def test_overhead(tmp_path):
    result = _overhead.overhead(
        task="digits", workers=2, batch_size=16, rounds=5, compiles=2, out=str(tmp_path)
    )
    saved = json.loads((tmp_path / "overhead.json").read_text())
    assert saved["run"] == result["run"]
    assert set(saved["run_seconds"]) == {"relaxjax", "pmean", "jit"}
    assert saved["run"]["baseline"] in {"pmean", "jit"}
    assert (tmp_path / "overhead.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_the_three_programs_train_the_same():
    task = _overhead.TASKS["digits"](0)
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:2]), ("data",))
    batch = jax.device_put(
        next(task.batches(0, 16)),
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data")),
    )
    losses = []
    for make in _overhead.MAKERS.values():
        run = _measure.stepper(*make(task, mesh), batch)
        losses.append([float(run()[1]["loss"]) for _ in range(3)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    np.testing.assert_allclose(losses[0], losses[2], rtol=1e-4)


@pytest.mark.long
def test_fusion(tmp_path, monkeypatch):
    small = {"w": (30, 30), "b": (3,)}
    monkeypatch.setattr(_fusion, "resnet50_shapes", lambda: small)
    result = _fusion.fusion(workers=2, rounds=5, out=str(tmp_path))
    assert result["speedup"][_fusion.ALONE]["median"] == 1.0
    assert (tmp_path / "fusion.json").exists()


@pytest.mark.slow
def test_low_rank(tmp_path):
    small = {"rank": 1, "rows": 2, "width": 16, "layers": 1}
    result = _low_rank.low_rank(**small, rounds=5, out=str(tmp_path))
    plain, low = result["seconds"]
    expected = _measure.ratio(result["seconds"][low], result["seconds"][plain])
    assert result["ratio"] == expected._asdict()
    extra = result["memory"][low][0] - result["memory"][plain][0]
    size = result["conditions"]["parameters"]
    assert 0.9 * 4 * size < extra < 1.1 * 4 * size  # the residual, and a little
    assert json.loads((tmp_path / "low_rank.json").read_text())["target"] == 1.1


def test_exponents_are_of_the_last_two_sizes():
    row = {1: {"a": 7.0, "b": 1.0}, 10: {"a": 1.0, "b": 2.0}, 40: {"a": 4.0, "b": 2.0}}
    assert _growth._exponents(row) == {"a": 1.0, "b": 0.0}
    assert _growth._exponents({1: {"a": 1.0}}) == {}


@pytest.mark.long
@pytest.mark.slow
def test_growth(tmp_path, monkeypatch):
    few = {name: _growth.METHODS[name] for name in ("8 bits", "gossip")}
    monkeypatch.setattr(_growth, "METHODS", few)
    monkeypatch.setattr(_growth, "LEAVES", (2, 4, 8))
    monkeypatch.setattr(_growth, "PARAMETERS", (1000, 2000))
    sizes = {"most_leaves": 4, "most_workers": 16}
    result = _growth.growth(repeats=1, out=str(tmp_path), **sizes)
    seconds = result["seconds"]
    assert {*seconds} == {"leaves", "workers", "parameters"}
    assert {*seconds["leaves"]["gossip"]} == {2, 4}
    assert {*seconds["workers"]["plan"]} == {2, 16}
    assert {*result["exponents"]["leaves"]["8 bits"]} == {"init", "trace", "wire_bytes"}
    assert (tmp_path / "growth_workers.png").exists()


@pytest.mark.long
def test_ring(tmp_path, monkeypatch):
    monkeypatch.setattr(_ring, "DEVICES", (2, 4))
    result = _ring.ring(rounds=2, out=str(tmp_path))
    assert set(result["compile_seconds"]) == {"2", "4"}
    # The compiler's own analysis, so this is no matter of speed.
    most = 2 if jax.__version_info__ < (0, 11) else 3
    assert max(result["temporary_buckets"].values()) <= most + 0.01


@pytest.mark.slow
def test_algorithms(tmp_path, monkeypatch):
    monkeypatch.setattr(_algorithms, "WORKERS", (2, 4))
    monkeypatch.setattr(_algorithms, "KIBIBYTES", (1, 2048))
    # Two arrays of 2 MiB on each of two workers; four on each of four are too much.
    monkeypatch.setattr(_algorithms, "LARGEST_TOTAL_BYTES", 8 * 2**20)
    result = _algorithms.algorithms(rounds=5, out=str(tmp_path))
    names = [sorted(case["ratio"]) for case in result["cases"]]
    every = sorted(["psum", *_algorithms.CANDIDATES])
    without = {"hierarchical"}, {"hierarchical"}, set(), {"one_shot"}
    assert names == [[x for x in every if x not in left] for left in without]
    assert all(case["ratio"]["psum"]["median"] == 1.0 for case in result["cases"])
    saved = json.loads((tmp_path / "algorithms.json").read_text())
    assert saved["cases"] == result["cases"]
    for workers in (2, 4):
        plot = tmp_path / f"algorithms{workers}.png"
        assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(_bytes, "ONE_AXIS", ("psum", "ring", "one_shot"))
    small = _models.transformer(_models.Transformer(1, 64, 64))
    monkeypatch.setattr(_bytes, "transformer", lambda module: small)
    result = _bytes.count_bytes(rounds=5, layers=1, out=str(tmp_path))
    assert set(result["seconds"]) == {"gradient", *_bytes.ONE_AXIS}
    # A ring sends what the bandwidth-optimal algorithms send, but for rounding up.
    sent = result["bytes"]
    assert sent["psum"] <= sent["ring"] < 1.001 * sent["psum"]
    assert sent["one_shot"] == 4 * sent["psum"]
    assert json.loads((tmp_path / "bytes.json").read_text())["bytes"] == sent
    assert (tmp_path / "bytes.png").read_bytes().startswith(b"\x89PNG")


def test_codecs(tmp_path, monkeypatch):
    made = {name: _codecs.compressors()[name] for name in ("natural", "sign")}
    monkeypatch.setattr(_codecs, "compressors", lambda: made)
    result = _codecs.codecs(size_mb=0.004, rounds=5, out=str(tmp_path))
    assert [row["name"] for row in result["rows"]] == list(made)
    row = result["rows"][1]
    assert row["bytes"] == 1048 // 8 + 4
    moved = (4 * 1048 + row["bytes"]) / (8 * 1048)
    ratios = _measure.ratio(row["seconds"]["x + 1"], row["seconds"]["encode"])
    assert row["encode share"][0] == pytest.approx(ratios.median * moved)
    assert json.loads((tmp_path / "codecs.json").read_text()) == result
    assert (tmp_path / "codecs.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_payloads(tmp_path, monkeypatch):
    made = {name: _payloads.COMPRESSORS[name] for name in ("random_k", "sign")}
    monkeypatch.setattr(_payloads, "COMPRESSORS", made)
    monkeypatch.setattr(_payloads, "WORKERS", (4,))
    few = {name: _payloads.EXCHANGES[name] for name in ("psum", "one_shot", "two_shot")}
    monkeypatch.setattr(_payloads, "EXCHANGES", few)
    result = _payloads.payloads(size=800, out=str(tmp_path))
    random_k, sign = (row["times fewer"] for row in result["rows"])
    ring = 2 * 3 * 200 * 4
    assert random_k["psum"] == ring / (2 * 3 * 2 * 4)
    assert sign["psum"] is None
    assert sign["two_shot"] == ring / (2 * 3 * (25 + 4))
    assert sign["one_shot"] == ring / (3 * (100 + 4))
    assert json.loads((tmp_path / "payloads.json").read_text()) == result
    assert (tmp_path / "payloads.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_algorithms_that_are_timed_compute_the_sum(monkeypatch):
    for name, run in _algorithms._runs(4, 1).items():
        np.testing.assert_array_equal(run(), 4.0, err_msg=name)


@pytest.mark.slow
def test_emulation(tmp_path, monkeypatch):
    monkeypatch.setattr(_emulation, "WORKERS", (2, 4))
    result = _emulation.emulation(batch_size=64, rounds=5, out=str(tmp_path))
    sizes = result["adam"]["state_bytes"]
    assert sizes["4"] == 2 * sizes["2"]
    assert (tmp_path / "emulation.json").exists()


GROUPED = [f"{group} {name}" for group, t in _main.GROUPS.items() for name in t]


@pytest.mark.parametrize("name", [*_main.BENCHMARKS, *GROUPED])
def test_each_is_a_command(name):
    done = CliRunner().invoke(_main.app, [*name.split(), "--help"])
    assert done.exit_code == 0
    assert "--out" in done.stdout


def test_help_imports_no_jax():
    code = (
        "import sys\nfrom benchmarks.__main__ import app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\nassert 'jax' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert "hand-written pmean" in done.stdout


@benchmark("tiny", devices="workers")
def tiny(run: Run, workers: Workers = 8, rounds: Rounds = 20) -> _report.Result:
    """Nothing."""
    print("to whoever reads")
    return run.finish({"conditions": run.conditions(rounds=rounds + 1), "rows": [1]})


def test_a_command_binds_its_options(monkeypatch, tmp_path):
    devices = []
    monkeypatch.setattr(_report, "emulate_devices", devices.append)
    monkeypatch.setitem(_main.BENCHMARKS, "fusion", f"{__name__}:tiny")
    monkeypatch.setattr(_main, "import_module", lambda _: sys.modules[__name__])
    words = ["fusion", "--rounds", "6", "--out", str(tmp_path)]
    done = CliRunner().invoke(_main.app, ["--json", *words])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert "to whoever reads" in done.stderr
    assert result == json.loads((tmp_path / "tiny.json").read_text())
    assert result["conditions"]["workers"] == 8
    assert result["conditions"]["rounds"] == 7  # what is known beside options holds
    assert devices == [8]
    assert tiny(workers=3, out=tmp_path)["conditions"]["workers"] == 3
    assert devices == [8]  # a call leaves JAX as it is
    with pytest.raises(TypeError, match="unexpected keyword"):
        tiny(color=1)


def test_orders_run_one_after_the_other(monkeypatch):
    monkeypatch.setattr(_main, "import_module", lambda _: sys.modules[__name__])
    for name in ("speed", "scale"):
        monkeypatch.setitem(_main.ORDERS, name, f"{__name__}:plain")
    done = CliRunner().invoke(
        _main.app, ["--json", "orders", "scale", "speed", "--rounds", "7"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"scale": {"rounds": 20}, "speed": {"rounds": 7}}
    done = CliRunner().invoke(_main.app, ["orders", "speed", "nothing"])
    assert done.exit_code == 2
    assert "'nothing' is not one of quality, speed" in done.stderr


@benchmark("plain")
def plain(run: Run, rounds: Rounds = 20) -> _report.Result:
    """Nothing."""
    return dict(run.options)


def test_too_few_devices_for_a_bench(monkeypatch):
    monkeypatch.setenv("NPROC", "0")
    monkeypatch.setattr(jax.config, "update", lambda *_: None)
    with pytest.raises(typer.Exit) as error:
        _devices.emulate_devices(99)
    assert error.value.exit_code == 2
    assert os.environ["NPROC"] == "206"
    _devices.emulate_devices(4)


def test_processes_that_differ(monkeypatch):
    monkeypatch.setattr(WorkerMesh, "processes", property(lambda _: 2))
    monkeypatch.setattr(
        _agree,
        "texts_of_all",
        lambda _, text: [text, text.replace("float32[3]", "float32[4]")],
    )
    tx = relaxjax.all_reduce("data")
    workers = workers_of(relaxjax.emulate(2), None, "test")
    with pytest.raises(ValueError, match=r"leaf 'w': process 0 has float32\[3\], proc"):
        _agree.require_agreement(tx, {"w": np.zeros(3, np.float32)}, workers)
    monkeypatch.setattr(_agree, "texts_of_all", lambda _, text: [text, text])
    _agree.require_agreement(tx, {"w": np.zeros(3, np.float32)}, workers)


@pytest.mark.slow
@pytest.mark.parametrize("module", [_models.VGG16, _models.ResNet50, _models.Inception])
def test_image_models_have_a_thousand_classes(module):
    images = jax.ShapeDtypeStruct((1, 224, 224, 3), np.float32)
    model = _models._of(module(), images)
    assert jax.eval_shape(model.apply, model.params, *model.args).shape == (1, 1000)


def test_overlap_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(_gpu_program, "PLUGINS", ("relaxjax.none", "jax_plugins.none"))
    found = CliRunner().invoke(_main.app, ["overlap", "--out", str(tmp_path)])
    assert found.exit_code == 2
    assert 'pip install "relaxjax[gpu-compile]"' in found.stderr


def test_products_say_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    found = CliRunner().invoke(_main.app, ["products", "--out", str(tmp_path)])
    assert found.exit_code == 2
    assert 'pip install "relaxjax[bench]"' in found.stderr


@pytest.mark.long
def test_overlap(monkeypatch, tmp_path):
    """Its arithmetic, on programs for emulated CPU devices."""
    devices = jax.sharding.Mesh(np.asarray(jax.devices()[:8]), ("data",))
    monkeypatch.setattr(_overlap, "gpu_mesh", lambda shape: devices)
    text = PERMUTES.format(8 * 2**20)
    for name in ("jit_text", "pmean_text", "relaxjax_text", "reduced_text"):
        monkeypatch.setattr(_overlap, name, lambda *_, **__: text)
    small = {"small": lambda: _overlap_models.perceptron(layers=2, width=8, rows=4)}
    monkeypatch.setattr(_overlap, "MODELS", small)
    options = {"gigabytes": 1e-3, "microseconds": 1e6, "bucket_mb": 64 * 4 / 2**20}
    result = _overlap.overlap(out=str(tmp_path), **options)
    saved = json.loads((tmp_path / "overlap.json").read_text())
    assert saved["rows"] == result["rows"]
    assert (tmp_path / "overlap.png").read_bytes().startswith(b"\x89PNG")
    first = result["rows"][0]
    assert first["exposed"] == pytest.approx(1.0 + 4 * 8 * 2**20 / 1e6)
    last_bucket = 1.0 + 2 * 7 / 8 * 256 / 1e6
    assert first["units"] == pytest.approx(first["exposed"] / last_bucket)


SMALL = {"layers": 2, "width": 64, "vocabulary": 32}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("training", "way"),
    [
        (training, way)
        for training in (
            _overlap_models.scanned(**SMALL),
            _overlap_models.microbatched(**SMALL, microbatches=3),
        )
        for way in training.inside
    ],
)
def test_models_reduce_inside_as_they_would_after(training, way):
    leaves, structure = jax.tree.flatten(training.params)
    rng = np.random.default_rng(0)
    values = [rng.normal(0, 0.1, x.shape).astype(np.float32) for x in leaves]
    params = jax.tree.unflatten(structure, values)
    shape = (2, 2, *training.batch.shape[1:-1], 8)
    batch = rng.integers(32, size=shape, dtype=np.int32)

    inside = training.inside[way](relaxjax.all_reduce("data"))
    run = jax.jit(jax.vmap(inside, (None, 0), axis_name="data"))
    losses, grads = run(params, batch)
    apart = [jax.jit(training.gradient)(params, rows) for rows in batch]
    np.testing.assert_allclose(losses, [loss for loss, _ in apart], rtol=1e-5)
    mean = jax.tree.map(lambda *g: np.mean(g, 0), *(g for _, g in apart))
    for ours, theirs in zip(jax.tree.leaves(grads), jax.tree.leaves(mean), strict=True):
        np.testing.assert_allclose(ours[0], theirs, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("devices", [7, 9])
def test_hosts_share_the_devices_equally(devices):
    with pytest.raises(ValueError, match=f"{devices} devices do not divide among 2 ho"):
        _gpu_program.gpu_mesh((devices,), hosts=2)


PERMUTES = """HloModule permute, is_scheduled=true, num_partitions=8
ENTRY %main (x: f32[8]) -> f32[8] {{
  %x = f32[{}] parameter(0)
  %y = f32[8] copy(%x)
  ROOT %r = f32[8] collective-permute(%x), source_target_pairs={{{{0,1}}}}
}}
"""

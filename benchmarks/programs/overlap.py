"""How much of the communication is exposed in programs for eight H100s.

Nothing is run: each program is compiled for GPUs that are not there, and its schedule
is replayed with stated rates (`relaxjax.schedule.replay`). One unit is the time of the
last bucket in the true order, which nothing can hide but the optimizer: one transfer,
and for the ring 2 (n - 1); of gossip, a bucket to one neighbour.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from jax.sharding import Mesh

from benchmarks.programs.gpu_program import gpu_mesh
from benchmarks.programs.overlap_models import MODELS, Training
from benchmarks.programs.overlap_programs import (
    delay_text,
    gossip_text,
    inside_text,
    jit_text,
    pmean_text,
    relaxjax_text,
)
from benchmarks.report import conditions, plot, save, show
from relaxjax.decentralized._gossip import combine_then_adapt, gossip
from relaxjax.schedule import (
    Device,
    Link,
    Replay,
    backward_order,
    plan_buckets,
    plan_groups,
    replay,
)

Program = tuple[Callable[[], str], Callable[[Link], float]]
"""What compiles it to HLO text, and the seconds of its unit over a link."""

DEVICES = 8
BANDWIDTHS = (25e9, 50e9, 100e9, 200e9, 450e9)  # bytes per second; the last is NVLink's
# Of what waited: XLA begins messages early, and more buckets would pay more latencies.
LATE_BYTES = 10 * 2**20
TARGETS = {
    "exposed": 1.3,
    "exposed, in a loop": 2.0,
    "share": 0.75,
    "share of all, combine_then_adapt": 0.6,
    "share of all, delay(1)": 0.8,
}
COLUMNS = (
    "model",
    "program",
    "transfers",
    "compute ms",
    "exposed ms",
    "units",
    "share",
    "of all",
)


def overlap(
    *,
    tflops: float = 400.0,
    memory: float = 3.35e12,
    bandwidth: float = BANDWIDTHS[-1],
    latency: float = 1e-5,
    bucket_bytes: int = 8 * 2**20,
    models: Mapping[str, Callable[[], Training]] = MODELS,
    out: str = "runs/bench",
) -> dict[str, Any]:
    """Compiles, replays and compares.

    Args:
      tflops: 10^12 products and sums that a device computes in a second.
      memory: bytes that it moves in a second.
      bandwidth: bytes that a device sends in a second.
      latency: seconds that a transfer costs by itself.
      bucket_bytes: of relaxjax's buckets, and XLA's threshold in the row of its flags.
      models: what to train.
      out: folder for JSON and plot.

    Returns:
      What was seen, as saved.

    Raises:
      Unavailable: this machine cannot compile for GPUs.
    """
    mesh = gpu_mesh((DEVICES,))
    device = Device(flops=tflops * 1e12, bandwidth=memory)
    rows, lines = [], {}
    for model, make in models.items():
        training = make()
        for name, (program, unit) in programs(training, mesh, bucket_bytes).items():
            text = program()
            seen = {
                b: replay(text, device=device, link=Link(latency, b))
                for b in (bandwidth, *BANDWIDTHS)
            }
            link = Link(latency, bandwidth)
            rows.append(_row(model, name, seen[bandwidth], unit(link)))
            lines[f"{model}: {name}"] = [
                seen[b].exposed / seen[b].compute for b in BANDWIDTHS
            ]
    result = {
        "conditions": conditions(
            card="H100, compiled for, not run",
            devices=DEVICES,
            tflops=tflops,
            memory=memory,
            bandwidth=bandwidth,
            latency=latency,
            bucket_bytes=bucket_bytes,
        ),
        "rows": rows,
        "bandwidths": BANDWIDTHS,
        "exposed_over_compute": lines,
        "targets": TARGETS,
    }
    _report(result, out)
    return result


def _row(model: str, program: str, run: Replay, unit: float) -> dict[str, Any]:
    return {
        "model": model,
        "program": program,
        "transfers": len(run.transfers),
        "compute": run.compute,
        "exposed": run.exposed,
        "units": run.exposed / unit,
        "share": run.share,
        "share_of_all": run.share_of_all,
    }


def programs(training: Training, mesh: Mesh, bucket_bytes: int) -> dict[str, Program]:
    """What is compared, by name."""
    flags = {
        "xla_gpu_all_reduce_combine_threshold_bytes": str(bucket_bytes),
        "xla_gpu_enable_latency_hiding_scheduler": True,
    }
    stock = _unit(training, mesh, bucket_bytes, "psum")
    found: dict[str, Program] = {
        "pmean": (partial(pmean_text, training, mesh), stock),
        "jit + NamedSharding": (partial(jit_text, training, mesh), stock),
        "pmean, XLA's flags": (partial(pmean_text, training, mesh, flags), stock),
        **_in_orders(training, mesh, bucket_bytes),
    }
    for method in (combine_then_adapt, gossip):
        text = partial(gossip_text, training, mesh, method, bucket_bytes=bucket_bytes)
        unit = partial(Link.seconds, nbytes=bucket_bytes, messages=1)
        found[f"relaxjax {method.__name__}, ring"] = text, unit
    for algorithm, size in (("psum", bucket_bytes), ("halving_doubling", LATE_BYTES)):
        knobs = {"algorithm": algorithm, "bucket_bytes": size}
        text = partial(delay_text, training, mesh, **knobs)
        found[f"relaxjax delay(1), {algorithm}"] = text, stock
    for way in training.inside:
        text = partial(inside_text, training, mesh, way, bucket_bytes=bucket_bytes)
        found[f"relaxjax {way}"] = text, stock
    return found


def _in_orders(training: Training, mesh: Mesh, bucket_bytes: int) -> dict[str, Program]:
    """Of `all_reduce`, in the true order of the gradients and in others."""
    true = backward_order(training.loss, training.params, training.batch)
    ours = partial(relaxjax_text, training, mesh, bucket_bytes=bucket_bytes)
    found = {}
    for algorithm in ("psum", "ring"):
        unit = _unit(training, mesh, bucket_bytes, algorithm)
        for name, order in {"true": true, "default": None, "wrong": true[::-1]}.items():
            text = partial(ours, algorithm=algorithm, order=order)
            found[f"relaxjax {algorithm}, {name} order"] = text, unit
    return found


def _unit(
    training: Training, mesh: Mesh, bucket_bytes: int, algorithm: str
) -> Callable[[Link], float]:
    """Seconds of the last bucket in the true order, over a link."""
    true = backward_order(training.loss, training.params, training.batch)
    plan = plan_groups if algorithm == "psum" else plan_buckets
    last = plan(training.params, bucket_bytes=bucket_bytes, order=true)[-1]
    messages = 1 if algorithm == "psum" else 2 * (mesh.size - 1)
    sent = 2 * (mesh.size - 1) * last.nbytes / mesh.size
    return lambda link: link.seconds(sent, messages)


def _report(result: dict[str, Any], out: str) -> None:
    print(result["conditions"])
    table = [
        (
            row["model"],
            row["program"],
            row["transfers"],
            1e3 * row["compute"],
            1e3 * row["exposed"],
            row["units"],
            row["share"],
            row["share_of_all"],
        )
        for row in result["rows"]
    ]
    show("Exposed communication", COLUMNS, table)
    print(
        f"targets: exposed <= {TARGETS['exposed']} units, in a loop over layers "
        f"{TARGETS['exposed, in a loop']}; share of the backward pass's flops under a "
        f"transfer >= {TARGETS['share']}, unrolled; of all flops, with "
        f"combine_then_adapt, >= {TARGETS['share of all, combine_then_adapt']}, with "
        f"delay(1) >= {TARGETS['share of all, delay(1)']}"
    )
    path = save(result, out, "overlap")
    axes = ("GB/s that a device sends", "exposed / compute")
    x = [b / 1e9 for b in result["bandwidths"]]
    lines = {name: (x, y) for name, y in result["exposed_over_compute"].items()}
    plot(path, "Exposed communication", axes, lines)

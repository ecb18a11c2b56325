"""How much of the communication is exposed in programs for eight H100s.

Nothing is run: each program is compiled for GPUs that are not there, and its schedule
is replayed with stated rates (`relaxjax.schedule.replay`). One unit is the time of the
last bucket in the true order, which nothing can hide but the optimizer: one transfer,
or 2 (n - 1) for the ring; for gossip, a bucket to one neighbor.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer
from jax.sharding import Mesh
from optax import GradientTransformation

from benchmarks.programs.ahead_of_time import Gigabytes, Microseconds, Tflops, rates
from benchmarks.programs.gpu_program import gpu_mesh
from benchmarks.programs.overlap_models import MODELS, Workload
from benchmarks.programs.overlap_programs import (
    delay_text,
    gossip_text,
    inside_text,
    jit_text,
    pmean_text,
    reduced_text,
    relaxjax_text,
)
from benchmarks.report import Plot, Result, Run, Table, benchmark
from relaxjax import all_reduce, combine_then_adapt, compression, gossip, power_sgd
from relaxjax.schedule import (
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
LATE_BYTES = 10 * 2**20
"""Bytes of a bucket behind `delay`: it starts early, and more pay more latencies."""
TARGETS = {
    "exposed": 1.3,
    "exposed, in a loop": 2.0,
    "share": 0.75,
    "share of all, combine_then_adapt": 0.6,
    "share of all, delay(1)": 0.8,
}


# Without a driver, JAX's CUDA plugin can only compile.
@benchmark("overlap", platform="cpu")
def overlap(
    run: Run,
    tflops: Tflops = 400,
    gigabytes: Gigabytes = BANDWIDTHS[-1] / 1e9,
    microseconds: Microseconds = 10,
    bucket_mb: Annotated[
        float,
        typer.Option(min=0.001, help="MiB of a bucket, and of XLA's flag in its row."),
    ] = 8,
) -> Result:
    """Exposed communication in programs for eight H100s, compiled without one."""
    mesh, bucket_bytes = gpu_mesh((DEVICES,)), int(bucket_mb * 2**20)
    device, link, known = rates(tflops, gigabytes, microseconds)
    known |= {"devices": DEVICES, "flags": os.environ.get("XLA_FLAGS", "")}
    rows, exposed = [], {}
    result = {
        "conditions": run.conditions(**known, bucket_bytes=bucket_bytes),
        "rows": rows,
        "bandwidths": BANDWIDTHS,
        "exposed_over_compute": exposed,
        "targets": TARGETS,
    }
    for model, make in MODELS.items():
        training = make()
        for name, (program, unit) in programs(training, mesh, bucket_bytes).items():
            text = program()
            replays = {
                b: replay(text, device=device, link=Link(link.latency, b))
                for b in (link.bandwidth, *BANDWIDTHS)
            }
            rows.append(_row(model, name, replays[link.bandwidth], unit(link)))
            print(rows[-1], flush=True)
            exposed[f"{model}: {name}"] = [
                replays[b].exposed / replays[b].compute for b in BANDWIDTHS
            ]
            run.save(result)  # so far: a run may take an hour
    title = "Exposed communication"
    axes = ("GB/s that a device sends", "exposed / compute")
    gigabytes_per_second = [b / 1e9 for b in BANDWIDTHS]
    return run.finish(
        result,
        tables=[
            Table.of(
                title,
                rows,
                *("model", "program", "transfers"),
                ("compute ms", lambda row: 1e3 * row["compute"]),
                ("exposed ms", lambda row: 1e3 * row["exposed"]),
                *("units", "share", ("of all", "share_of_all")),
            )
        ],
        notes=[
            f"targets: exposed <= {TARGETS['exposed']} units, in a loop over layers "
            f"{TARGETS['exposed, in a loop']}; share of the backward pass's flops "
            f"under a transfer >= {TARGETS['share']}, unrolled; of all flops, with "
            f"combine_then_adapt, >= {TARGETS['share of all, combine_then_adapt']}, "
            f"with delay(1) >= {TARGETS['share of all, delay(1)']}"
        ],
        plots=[
            Plot(
                title, axes, {k: (gigabytes_per_second, y) for k, y in exposed.items()}
            )
        ],
    )


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


def programs(training: Workload, mesh: Mesh, bucket_bytes: int) -> dict[str, Program]:
    """The programs that are compared, by name."""
    flags = {
        "xla_gpu_all_reduce_combine_threshold_bytes": str(bucket_bytes),
        "xla_gpu_enable_latency_hiding_scheduler": True,
    }
    stock = _unit(training, mesh, bucket_bytes, "psum")
    compared: dict[str, Program] = {
        "pmean": (partial(pmean_text, training, mesh), stock),
        "jit + NamedSharding": (partial(jit_text, training, mesh), stock),
        "pmean, XLA's flags": (partial(pmean_text, training, mesh, flags), stock),
        **_in_orders(training, mesh, bucket_bytes),
    }
    for method in (combine_then_adapt, gossip):
        text = partial(gossip_text, training, mesh, method, bucket_bytes=bucket_bytes)
        unit = partial(Link.seconds, nbytes=bucket_bytes, messages=1)
        compared[f"relaxjax {method.__name__}, ring"] = text, unit
    for algorithm, size in (("psum", bucket_bytes), ("halving_doubling", LATE_BYTES)):
        knobs = {"algorithm": algorithm, "bucket_bytes": size}
        text = partial(delay_text, training, mesh, **knobs)
        compared[f"relaxjax delay(1), {algorithm}"] = text, stock
    for name, reducer in _in_codes(training, bucket_bytes).items():
        text = partial(reduced_text, training, mesh, reducer)
        compared[f"relaxjax {name}"] = text, stock
    for way in training.inside:
        text = partial(inside_text, training, mesh, way, bucket_bytes=bucket_bytes)
        compared[f"relaxjax {way}"] = text, stock
    return compared


def _in_orders(training: Workload, mesh: Mesh, bucket_bytes: int) -> dict[str, Program]:
    """Programs of `all_reduce`, in the true order of the gradients and in others."""
    true = backward_order(training.loss, training.params, training.batch)
    ours = partial(relaxjax_text, training, mesh, bucket_bytes=bucket_bytes)
    compared = {}
    for algorithm in ("psum", "ring"):
        unit = _unit(training, mesh, bucket_bytes, algorithm)
        orders = {"true": true, "default": None, "wrong": true[::-1]}
        if algorithm == "ring":  # its latencies are the same in any order
            orders = {"true": true}
        for name, order in orders.items():
            text = partial(ours, algorithm=algorithm, order=order)
            compared[f"relaxjax {algorithm}, {name} order"] = text, unit
    return compared


def in_true_order(training: Workload, mesh: Mesh, bucket_bytes: int) -> Program:
    """The program of plain `all_reduce` whose buckets leave as they appear."""
    return _in_orders(training, mesh, bucket_bytes)["relaxjax psum, true order"]


def _in_codes(
    training: Workload, bucket_bytes: int
) -> dict[str, GradientTransformation]:
    """Reducers that send less, in no order and a true one; the unit is of floats."""
    true = backward_order(training.loss, training.params, training.batch)
    codes = {"8 bits": compression.quantize(8), "signs": compression.sign()}
    found: dict[str, GradientTransformation] = {}
    for name, code in codes.items():
        fed = compression.error_feedback(code)
        for how, order in {"": None, ", true order": true}.items():
            knobs = {"bucket_bytes": bucket_bytes, "order": order}
            found[name + how] = all_reduce("data", compressor=fed, **knobs)
    return found | {"power_sgd": power_sgd("data", rank=4)}


def _unit(
    training: Workload, mesh: Mesh, bucket_bytes: int, algorithm: str
) -> Callable[[Link], float]:
    """Seconds of the last bucket in the true order, over a link."""
    true = backward_order(training.loss, training.params, training.batch)
    plan = plan_groups if algorithm == "psum" else plan_buckets
    last = plan(training.params, bucket_bytes=bucket_bytes, order=true)[-1]
    messages = 1 if algorithm == "psum" else 2 * (mesh.size - 1)
    sent = 2 * (mesh.size - 1) * last.nbytes / mesh.size
    return lambda link: link.seconds(sent, messages)

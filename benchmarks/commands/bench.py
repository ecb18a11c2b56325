"""`relaxjax bench NAME`: benchmarks with conditions, table, JSON and plot."""

import json
import sys
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from benchmarks.commands import bench_network as _bench_network
from benchmarks.commands import bench_plan as _bench_plan
from benchmarks.commands import bench_programs as _bench_programs
from benchmarks.commands import testbed as _testbed
from relaxjax.cli._devices import emulate_devices
from relaxjax.cli._names import TaskName

Result = dict[str, Any]


class OrderBench(StrEnum):
    """Benchmarks of orders of transfers."""

    QUALITY = "quality"
    SPEED = "speed"
    THROUGHPUT = "throughput"
    SCALE = "scale"


def _stdout_for_json(context: typer.Context, asked: bool) -> TextIO | None:
    """Where JSON goes; all else that is printed goes to stderr then."""
    if not asked:
        return None
    stdout = sys.stdout
    context.with_resource(redirect_stdout(sys.stderr))
    return stdout


def _print_json(result: Result, as_json: TextIO | None) -> None:
    """Prints what a command returns, where the user asks for it."""
    if as_json:
        print(json.dumps(result), file=as_json)


bench = typer.Typer(
    help="Benchmarks: each prints its conditions and a table, and saves JSON and PNG.",
    no_args_is_help=True,
    result_callback=_print_json,
)


@bench.callback()
def begin(
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", callback=_stdout_for_json, help="JSON alone on stdout, as saved."
        ),
    ] = False,
) -> None:
    """Options of all benchmarks, before the name of one."""


Out = Annotated[Path, typer.Option(help="Folder for the JSON and the PNG.")]
Rounds = Annotated[int, typer.Option(min=5, help="Interleaved rounds.")]
Workers = Annotated[int, typer.Option(min=1, help="Devices, emulated on CPU.")]
RUNS = Path("runs/bench")


@bench.command()
def overhead(
    workers: Workers = 8,
    rounds: Rounds = 40,
    compiles: Annotated[int, typer.Option(min=3, help="Compilations of each.")] = 7,
    task: Annotated[TaskName, typer.Option(help="What is trained.")] = TaskName.CHARS,
    batch_size: Annotated[int, typer.Option(min=1, help="Rows in all.")] = 256,
    out: Out = RUNS,
) -> Result:
    """A full step against hand-written pmean and against jit with NamedSharding."""
    from benchmarks.micro import overhead as _overhead

    emulate_devices(workers)
    return _overhead.overhead(
        task=task.value,
        workers=workers,
        batch_size=batch_size,
        rounds=rounds,
        compiles=compiles,
        out=str(out),
    )


@bench.command()
def fusion(workers: Workers = 8, rounds: Rounds = 20, out: Out = RUNS) -> Result:
    """A ring over the 161 tensors of a ResNet-50 gradient, in buckets or one by one."""
    from benchmarks.micro import fusion as _fusion

    emulate_devices(workers)
    return _fusion.fusion(workers=workers, rounds=rounds, out=str(out))


@bench.command()
def checkpoint(
    task: Annotated[TaskName, typer.Option(help="What is trained.")] = TaskName.CHARS,
    workers: Workers = 4,
    steps: Annotated[int, typer.Option(min=1, help="Of each run.")] = 100,
    every: Annotated[int, typer.Option(min=1, help="Steps between saves.")] = 10,
    rounds: Rounds = 5,
    out: Out = RUNS,
) -> Result:
    """Training with asynchronous checkpoints against training without."""
    from benchmarks.micro import checkpoint as _checkpoint

    emulate_devices(workers)
    return _checkpoint.checkpoint(
        task=task.value,
        workers=workers,
        steps=steps,
        every=every,
        rounds=rounds,
        out=str(out),
    )


@bench.command()
def ring(rounds: Rounds = 9, out: Out = RUNS) -> Result:
    """Compile time of the ring at 8, 16 and 32 devices, and its temporary memory."""
    from benchmarks.micro import ring as _ring

    emulate_devices(max(_ring.DEVICES))
    return _ring.ring(repeats=rounds, out=str(out))


@bench.command()
def algorithms(rounds: Rounds = 40, out: Out = RUNS) -> Result:
    """Every all-reduce algorithm against psum: 4 KiB to 64 MiB, 2, 4 and 8 devices."""
    from benchmarks.micro import algorithms as _algorithms

    emulate_devices(max(_algorithms.WORKERS))
    return _algorithms.algorithms(rounds=rounds, out=str(out))


@bench.command()
def emulation(
    rounds: Rounds = 10,
    batch_size: Annotated[int, typer.Option(min=1024, help="Rows in all.")] = 262144,
    out: Out = RUNS,
) -> Result:
    """16 to 1024 workers emulated on one device against one worker."""
    from benchmarks.micro import emulation as _emulation

    return _emulation.emulation(batch_size=batch_size, rounds=rounds, out=str(out))


@bench.command(name="bytes")
def count_bytes(rounds: Rounds = 9, out: Out = RUNS) -> Result:
    """How long wire_bytes takes to count what a 12-layer transformer sends."""
    from benchmarks.micro import bytes as _bytes

    emulate_devices(_bytes.WORKERS)
    return _bytes.count_bytes(rounds=rounds, out=str(out))


@bench.command()
def codecs(
    size_mb: Annotated[float, typer.Option(min=0.001, help="MiB of the array.")] = 64,
    rounds: Rounds = 20,
    out: Out = RUNS,
) -> Result:
    """How fast every compressor encodes and decodes, against x + 1."""
    from benchmarks.micro import codecs as _codecs

    return _codecs.codecs(size_mb=size_mb, rounds=rounds, out=str(out))


@bench.command(name="quality-at-bytes")
def quality(
    task: Annotated[list[TaskName] | None, typer.Option(help="Default: both.")] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Of each run; default: the task's.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Of the best methods.")] = 3,
    out: Out = RUNS,
) -> Result:
    """Held-out quality of compressors at 1/32, 1/100 and 1/400 of a ring's bytes."""
    from benchmarks.training import quality as _quality

    return _quality.quality(
        tasks=tuple(task or _quality.STEPS), steps=steps, seeds=seeds, out=str(out)
    )


@bench.command()
def low_rank(
    rank: Annotated[int, typer.Option(min=1, help="Of the approximation.")] = 4,
    rounds: Rounds = 20,
    out: Out = RUNS,
) -> Result:
    """What PowerSGD computes in a step, beside Adam's, without communication."""
    from benchmarks.micro import low_rank as _low_rank

    return _low_rank.low_rank(rank=rank, rounds=rounds, out=str(out))


@bench.command()
def methods(
    task: Annotated[list[TaskName] | None, typer.Option(help="Default: both.")] = None,
    steps: Annotated[
        int | None, typer.Option(min=2, help="Of each run; default: the task's.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 3,
    out: Out = RUNS,
) -> Result:
    """Whole compressed methods beside their uncompressed parents, equal steps."""
    from benchmarks.training import methods as _methods
    from relaxjax.tasks import TASKS

    tasks = {name: TASKS[name] for name in task or TASKS}
    return _methods.methods(tasks=tasks, steps=steps, seeds=seeds, out=str(out))


@bench.command()
def later(
    steps: Annotated[int, typer.Option(min=2, help="Of each run.")] = 3000,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 1,
    out: Out = RUNS,
) -> Result:
    """Local steps and outer optimizers beside all-reduce, on characters."""
    from benchmarks.training import local_updates as _later

    return _later.later(steps=steps, seeds=seeds, out=str(out))


@bench.command()
def heterogeneity(
    seeds: Annotated[int, typer.Option(min=1, help="Splits and starts.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Of each run.")] = 400,
    out: Out = RUNS,
) -> Result:
    """Decentralised methods on digits split by label over 16 workers."""
    from benchmarks.training import heterogeneity as _heterogeneity

    return _heterogeneity.heterogeneity(seeds=seeds, steps=steps, out=str(out))


@bench.command()
def payloads(
    size: Annotated[int, typer.Option(min=1, help="Elements of the array.")] = 1 << 20,
    out: Out = RUNS,
) -> Result:
    """Bytes of every compressor by every exchange, from compiled programs."""
    from benchmarks.micro import payloads as _payloads

    emulate_devices(max(_payloads.WORKERS))
    return _payloads.payloads(size=size, out=str(out))


@bench.command()
def orders(
    names: Annotated[list[OrderBench], typer.Argument(help="One or several of them.")],
) -> Result:
    """Orders of transfers: their quality, speed, simulated throughput and scale."""
    from benchmarks.orders import orders as _orders

    return {name.value: _orders.BENCHES[name.value]() for name in names}


bench.command()(_bench_plan.published)
bench.command()(_bench_plan.evidence)
bench.command()(_bench_plan.regret)
bench.command()(_bench_plan.planned)
bench.command()(_bench_programs.overlap)
bench.command()(_bench_programs.pulls)
bench.command()(_bench_programs.host_copies)
bench.command()(_bench_programs.host_params)
bench.command(name="network")(_bench_network.run_network)
bench.command(name="testbed")(_testbed.run_testbed)

"""`relaxjax bench overlap`, `pulls`, `host-copies`: for GPUs that are not there.

And `bench host-params`, which measures what the last compiles, on the device at hand.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import jax
import typer

Tflops = Annotated[float, typer.Option(min=1, help="Of a device, 10^12/s.")]
Gigabytes = Annotated[
    float, typer.Option(min=0.1, help="That a device sends in a second.")
]
Microseconds = Annotated[float, typer.Option(min=0, help="Of a transfer.")]
Out = Annotated[Path, typer.Option(help="Folder for the JSON and the PNG.")]
RUNS = Path("runs/bench")


def overlap(
    tflops: Tflops = 400,
    gigabytes: Gigabytes = 450,
    microseconds: Microseconds = 10,
    bucket_mb: Annotated[float, typer.Option(min=0.001, help="MiB of a bucket.")] = 8,
    out: Out = RUNS,
) -> dict[str, Any]:
    """Exposed communication in programs for eight H100s, compiled without one."""
    from benchmarks.programs import overlap as _overlap

    return _compiled_only(
        _overlap.overlap,
        tflops=tflops,
        bandwidth=gigabytes * 1e9,
        latency=microseconds * 1e-6,
        bucket_bytes=int(bucket_mb * 2**20),
        out=str(out),
    )


def pulls(
    random_orders: Annotated[int, typer.Option(min=1, help="To compare with.")] = 20,
    tflops: Tflops = 400,
    gigabytes: Gigabytes = 450,
    microseconds: Microseconds = 10,
    out: Out = RUNS,
) -> dict[str, Any]:
    """Orders of pulls in programs for eight H100s, compiled without one."""
    from benchmarks.programs import pulls as _pulls

    return _compiled_only(
        _pulls.pulls,
        random_orders=random_orders,
        tflops=tflops,
        bandwidth=gigabytes * 1e9,
        latency=microseconds * 1e-6,
        out=str(out),
    )


def host_copies(
    random_orders: Annotated[int, typer.Option(min=1, help="To compare with.")] = 20,
    tflops: Tflops = 400,
    gigabytes: Gigabytes = 50,
    microseconds: Microseconds = 10,
    out: Out = RUNS,
) -> dict[str, Any]:
    """Orders of copies from host memory in a program for one H100, without one."""
    from benchmarks.programs import host_copies as _host_copies

    return _compiled_only(
        _host_copies.host_copies,
        random_orders=random_orders,
        tflops=tflops,
        bandwidth=gigabytes * 1e9,
        latency=microseconds * 1e-6,
        out=str(out),
    )


def host_params(
    rounds: Annotated[int, typer.Option(min=5, help="Interleaved rounds.")] = 20,
    random_orders: Annotated[int, typer.Option(min=1, help="To compare with.")] = 20,
    bucket_mb: Annotated[float, typer.Option(min=0.001, help="MiB of a copy.")] = 2,
    out: Out = RUNS,
) -> dict[str, Any]:
    """Orders of copies from host memory, measured on the device at hand."""
    from benchmarks.programs import host_params as _host_params

    return _host_params.host_params(
        rounds=rounds,
        random_orders=random_orders,
        bucket_bytes=int(bucket_mb * 2**20),
        out=str(out),
    )


def _compiled_only(run: Callable[..., Any], **knobs: Any) -> dict[str, Any]:
    """Runs a bench that compiles for GPUs, or says why it cannot."""
    from benchmarks.programs.ahead_of_time import Unavailable

    # Without a driver, JAX's CUDA plugin may only compile.
    jax.config.update("jax_platforms", "cpu")
    try:
        return run(**knobs)
    except Unavailable as reason:
        typer.echo(f"relaxjax: {reason}", err=True)
        raise typer.Exit(2) from None

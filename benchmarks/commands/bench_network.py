"""`relaxjax bench network`: relaxations and DDP between hosts."""

from pathlib import Path
from typing import Annotated, Any

import typer

from relaxjax.cli._errors import user_errors


def run_network(
    rate: Annotated[
        list[float] | None,
        typer.Option(min=0.1, help="Mbit/s of each link; default: 20, 50, 200, 1000."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="Label of a row, as tables have it; default: all."),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Of all methods.")] = 2,
    pairs: Annotated[
        int, typer.Option(min=0, help="Further rounds, of the best alone.")
    ] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Timed in each block.")] = 5,
    loss: Annotated[
        float | None, typer.Option(help="Held-out, nats; default: what all reach.")
    ] = None,
    curve_steps: Annotated[
        int, typer.Option(min=1, help="Of the trainings that show the loss.")
    ] = 150,
    width: Annotated[int, typer.Option(min=8, help="Of the model.")] = 256,
    layers: Annotated[int, typer.Option(min=1, help="Of the model.")] = 4,
    seed: Annotated[int, typer.Option(help="Of the order in rounds.")] = 0,
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="curves, steps, ablation (of overlap, fusion, hierarchy), bytes "
            "(stated, the kernel's), memory (of a process), slow (a host at half its "
            "processor); none: only report of what the folder has. Default: curves and "
            "steps."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for JSON and PNG.")] = Path(
        "runs/bench"
    ),
) -> dict[str, Any]:
    """Relaxations and PyTorch's DDP over four hosts, at several rates of their links.

    Hosts are network namespaces (Linux, root, iproute2), or processes over loopback.
    """
    from benchmarks.network import ablation as _network_ablation
    from benchmarks.network import audit as _network_audit
    from benchmarks.network import memory as _network_memory
    from benchmarks.network import methods as _network_methods
    from benchmarks.network import slow_host as _network_slow
    from benchmarks.network import study as _network

    with user_errors():
        methods = _network_methods.chosen(method)
        parts = _network.checked(part)
        sizes = {"width": width, "layers": layers, "out": str(out)}
        if "bytes" in parts:
            _network_audit.audit(methods=methods, **sizes)
        if "ablation" in parts:
            given = {} if rate is None else {"rates": rate}
            _network_ablation.ablation(rounds=rounds, seed=seed, **given, **sizes)
        if "memory" in parts:
            _network_memory.memory(methods=methods, **sizes)
        if "slow" in parts:
            _network_slow.slow_host(methods=methods, rounds=rounds, **sizes)
    return _network.network(
        parts=parts,
        rates=rate or _network.RATES,
        rounds=rounds,
        pairs=pairs,
        steps=steps,
        loss=loss,
        curve_steps=curve_steps,
        methods=methods,
        seed=seed,
        **sizes,
    )

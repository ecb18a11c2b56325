"""`relaxjax plan`: which relaxation pays, on a cluster that one may not have.

Parsing and printing only; the work is done in `relaxjax.plan`.
"""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relaxjax.cli._errors import user_errors

_USUAL = {
    "latency_ms": 0.05,
    "workers_per_host": 1,
    "inside_gbps": 800.0,
    "inside_latency_ms": 0.005,
    "codec_gbs": 200.0,
    "overlap": True,
}

if TYPE_CHECKING:
    from relaxjax.plan import Model, Network, Ranking


def plan(
    params: Annotated[float, typer.Option(help="Parameters of the model, as 340e6.")],
    compute_ms: Annotated[
        float, typer.Option(help="A step of one worker without communication, in ms.")
    ],
    workers: Annotated[int | None, typer.Option(help="How many in all.")] = None,
    bandwidth_gbps: Annotated[
        float | None, typer.Option(help="Of a host's link, each way, in Gbit/s.")
    ] = None,
    latency_ms: Annotated[
        float | None,
        typer.Option(help="Of a message between hosts, in ms; default: 0.05."),
    ] = None,
    workers_per_host: Annotated[
        int | None, typer.Option(help="They share its link; default: 1.")
    ] = None,
    inside_gbps: Annotated[
        float | None,
        typer.Option(help="Between workers of one host, in Gbit/s; default: 800."),
    ] = None,
    inside_latency_ms: Annotated[
        float | None,
        typer.Option(help="Of a message inside a host, in ms; default: 0.005."),
    ] = None,
    codec_gbs: Annotated[
        float | None,
        typer.Option(
            help="GB of float32 that a worker encodes or decodes in a second by "
            "quantize8, others in proportion; default: 200."
        ),
    ] = None,
    network: Annotated[
        Path | None,
        typer.Option(
            help="JSON of a relaxjax.plan.Network, instead of workers, links, codec "
            "and overlap."
        ),
    ] = None,
    bucket_mb: Annotated[float, typer.Option(help="Of a bucket, in MiB.")] = 8.0,
    overlap: Annotated[
        bool | None,
        typer.Option(
            "--overlap/--no-overlap",
            help="Messages travel under the backward pass (not on CPUs); default: yes.",
        ),
    ] = None,
    criterion: Annotated[
        str, typer.Option(help="fastest, or fewest_bytes.")
    ] = "fastest",
    quality: Annotated[
        str,
        typer.Option(
            help="Worst class that may be chosen: exact, equal, close, lossy, "
            "unmeasured. All are ranked."
        ),
    ] = "equal",
    memory_gb: Annotated[
        float | None,
        typer.Option(help="Of a worker, for params, gradient, Adam and residuals."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="JSON, no table.")] = False,
    chart: Annotated[
        Path | None,
        typer.Option(help="Draw who wins over bandwidth and latency here (PNG)."),
    ] = None,
) -> None:
    """Step time, bytes, memory and quality of every relaxation, fastest first.

    Nothing is run: times are simulated from a model of links, codecs and overlap.
    """
    told = {k: v for k, v in locals().items() if k not in ("as_json", "chart", "top")}
    from relaxjax import plan as planner

    with user_errors():
        where = _network(planner.Network, network, **_links(told))
        model = planner.Model.of_size(_whole(params), compute=compute_ms / 1e3)
        how: dict[str, Any] = {
            "criterion": criterion,
            "quality": quality,
            "memory": None if memory_gb is None else memory_gb * 1e9,
            "bucket_bytes": _bytes(bucket_mb),
        }
        found = planner.rank(model, where, **how, inputs=_inputs(told, where))
        if chart:
            _draw(chart, model, where, how)
    if as_json:
        typer.echo(json.dumps(found.told()))
    else:
        _print(found, where, top)


def _links(told: dict[str, Any]) -> dict[str, Any]:
    names = ("workers", "bandwidth_gbps", *_USUAL)
    return {name: told[name] for name in names}


def _network(make: "type[Network]", path: Path | None, **figures: Any) -> "Network":
    """From a file, or from figures."""
    from relaxjax.plan import codecs
    from relaxjax.schedule import Link

    given = {name: value for name, value in figures.items() if value is not None}
    if path is not None:
        if given:
            raise ValueError(
                f"network={path} says what {', '.join(given)} say as well: give the "
                "file, or the figures"
            )
        return make.load(path)
    if figures["workers"] is None or figures["bandwidth_gbps"] is None:
        raise ValueError(
            "workers and bandwidth-gbps are needed, or a file with --network"
        )
    now = {**_USUAL, **given}
    for name in ("bandwidth_gbps", "inside_gbps", "codec_gbs"):
        _positive(name.replace("_", "-"), now[name])
    return make(
        workers=now["workers"],
        per_host=now["workers_per_host"],
        link=Link(now["latency_ms"] / 1e3, now["bandwidth_gbps"] * 1e9 / 8),
        inside=Link(now["inside_latency_ms"] / 1e3, now["inside_gbps"] * 1e9 / 8),
        codec=codecs(now["codec_gbs"] * 1e9),
        overlap=now["overlap"],
    )


def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value} must be finite and more than 0")


def _whole(params: float) -> int:
    if not math.isfinite(params) or params != round(params) or params < 1:
        raise ValueError(
            f"params={params} must be a whole number of parameters, 1 or more"
        )
    return round(params)


def _bytes(bucket_mb: float) -> int:
    _positive("bucket-mb", bucket_mb)
    return max(4, round(bucket_mb * 2**20))


def _inputs(told: dict[str, Any], where: "Network") -> dict[str, Any]:
    """What was asked, and what the network is."""
    plain = {k: str(v) if isinstance(v, Path) else v for k, v in told.items()}
    return plain | {
        "params": _whole(told["params"]),
        "workers": where.workers,
        "workers_per_host": where.per_host,
        "bandwidth_gbps": where.link.bandwidth * 8 / 1e9,
        "latency_ms": where.link.latency * 1e3,
        "inside_gbps": where.inside.bandwidth * 8 / 1e9,
        "inside_latency_ms": where.inside.latency * 1e3,
        "codec_gbs": where.codec_rate("") / 1e9,
        "overlap": where.overlap,
    }


def _print(found: "Ranking", where: "Network", top: int) -> None:
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError as error:
        raise typer.BadParameter(
            'tables need rich: pip install "relaxjax[cli]", or use --json'
        ) from error
    table = Table(
        title=f"{where.workers} workers, {where.link.bandwidth * 8 / 1e9:g} Gbit/s and "
        f"{where.link.latency * 1e3:g} ms between hosts"
    )
    for place, column in enumerate(
        ("relaxation", "step ms", "messages ms", "MB a step", "memory GB", "quality")
    ):
        if place == 0:
            table.add_column(column, overflow="fold")
            continue
        side = "left" if column == "quality" else "right"
        table.add_column(column, justify=side, no_wrap=True, min_width=len(column))
    shown = list(found.rows[:top])
    shown += [found.choice] if found.choice not in shown else []
    for row in shown:
        p = row.prediction
        table.add_row(
            f"{'*' if row is found.choice else ' '} {row.label}",
            f"{1e3 * p.seconds:.4g}",
            f"{1e3 * p.messages:.4g}",
            f"{p.nbytes / 1e6:.4g}",
            f"{p.memory / 1e9:.3g}",
            row.quality.name,
        )
    console = Console()
    console.print(table)
    if len(found.rows) > top:
        console.print(f"{len(found.rows) - top} more: --top {len(found.rows)}")
    console.print(found.verdict, highlight=False)
    console.print(found.choice.tx, highlight=False, soft_wrap=True)


def _draw(path: Path, model: "Model", where: "Network", how: dict[str, Any]) -> None:
    from relaxjax.plan import winners

    winners(path, model, where, **how)

"""`relaxjax plan`: which relaxation pays, on a cluster that you may not have.

Parsing and printing only; the work is done in `relaxjax.plan`.
"""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from relaxjax import hosts, merges, schedule
from relaxjax import plan as planner
from relaxjax._core.foreign._ranges import HARDWARE, MEBIBYTES, PARAMS
from relaxjax.cli._errors import user_errors
from relaxjax.cli.printed._plan_table import busy, show, show_split

_DEFAULTS = {
    "latency_ms": 0.05,
    "window_mb": 6.0,
    "workers_per_host": 1,
    "inside_gbps": 800.0,
    "inside_latency_ms": 0.005,
    "codec_gbs": 200.0,
    "overlap": True,
}
_FIGURES = ("workers", "bandwidth_gbps", *_DEFAULTS)


_INSIDE = (
    *("tensor", "expert", "pipeline", "layers", "width", "tokens"),
    *("experts_per_token", "expert_params"),
)
_SHOWN = ("as_json", "xla_flags", "chart", "top")  # how it is shown, not what is asked


def plan(
    params: Annotated[
        float, typer.Option(help="Number of the model's parameters, as in 340e6.")
    ],
    compute_ms: Annotated[
        float, typer.Option(help="Time of a step without communication, in ms.")
    ],
    workers: Annotated[int | None, typer.Option(help="Workers on all hosts.")] = None,
    bandwidth_gbps: Annotated[
        float | None, typer.Option(help="Bandwidth of a host's link in Gbit/s.")
    ] = None,
    latency_ms: Annotated[
        float | None,
        typer.Option(help="Latency of a message between hosts in ms; default: 0.05."),
    ] = None,
    window_mb: Annotated[
        float | None,
        typer.Option(
            help="Most MiB on their way between two hosts, over all TCP streams; "
            "default: 6, as Linux allows one stream."
        ),
    ] = None,
    workers_per_host: Annotated[
        int | None, typer.Option(help="Workers that share a host; default: 1.")
    ] = None,
    inside_gbps: Annotated[
        float | None, typer.Option(help="Bandwidth in a host in Gbit/s; default: 800.")
    ] = None,
    inside_latency_ms: Annotated[
        float | None,
        typer.Option(help="Latency of a message in a host in ms; default: 0.005."),
    ] = None,
    codec_gbs: Annotated[
        float | None,
        typer.Option(
            help="Speed at which quantize8 encodes or decodes float32 in GB/s, other "
            "compressors in proportion; default: 200."
        ),
    ] = None,
    network: Annotated[
        Path | None,
        typer.Option(
            help="JSON file of a relaxjax.plan.Network, in place of the options on "
            "workers, links, codec and overlap."
        ),
    ] = None,
    bucket_mb: Annotated[
        float | None, typer.Option(help="Bucket size in MiB; searched by default.")
    ] = None,
    overlap: Annotated[
        bool | None,
        typer.Option(
            "--overlap/--no-overlap",
            help="Whether messages travel during the backward pass (on CPUs they do "
            "not); default: yes.",
        ),
    ] = None,
    criterion: Annotated[
        str, typer.Option(help="What to choose: fastest or fewest_bytes.")
    ] = "fastest",
    quality: Annotated[
        str,
        typer.Option(
            help="Worst quality that may be chosen: exact, equal, close, lossy or "
            "unmeasured. All are ranked."
        ),
    ] = "equal",
    memory_gb: Annotated[
        float | None,
        typer.Option(help="GB for a worker's params, gradient, Adam and residuals."),
    ] = None,
    merge: Annotated[
        str | None,
        typer.Option(
            help="Rule by which contributions merge, as in clipped or trimmed:b=1: "
            "ranks what can merge by it, with what it sends besides."
        ),
    ] = None,
    sharded: Annotated[
        bool,
        typer.Option(
            "--sharded", help="Rank ways to shard weights (relaxjax.fsdp) instead."
        ),
    ] = False,
    tensor: Annotated[
        int | None,
        typer.Option(
            help="Workers that share each product: shows legs inside instead."
        ),
    ] = None,
    expert: Annotated[
        int | None,
        typer.Option(help="Workers that hold the experts of a layer, likewise."),
    ] = None,
    pipeline: Annotated[
        int | None, typer.Option(help="Stages of a pipeline, likewise.")
    ] = None,
    layers: Annotated[int | None, typer.Option(help="Layers of a split model.")] = None,
    width: Annotated[
        int | None, typer.Option(help="Elements of a token between layers.")
    ] = None,
    tokens: Annotated[
        int | None,
        typer.Option(help="Tokens of a worker in a step, over all microbatches."),
    ] = None,
    experts_per_token: Annotated[
        int | None, typer.Option(help="Experts that a token goes to; default: 1.")
    ] = None,
    expert_params: Annotated[
        float | None, typer.Option(help="Share of the params that are in experts.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Rows of the table.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print only JSON.")] = False,
    xla_flags: Annotated[
        bool,
        typer.Option(
            "--xla-flags", help="Print XLA_FLAGS for GPUs on this network instead."
        ),
    ] = False,
    chart: Annotated[
        Path | None,
        typer.Option(help="PNG file for a chart of winners by bandwidth and latency."),
    ] = None,
) -> None:
    """Predict step time, bytes and memory of each relaxation.

    Nothing is run: times are simulated from a model of links, codecs and overlap.
    Relaxations are listed with the measured quality of their training, fastest first.
    """
    asked = {k: v for k, v in locals().items() if k not in _SHOWN}
    inside = {k: asked.pop(k) for k in _INSIDE}
    with user_errors():
        cluster = _network(network, {name: asked[name] for name in _FIGURES})
        model = planner.Model.of_size(_whole(params), compute=compute_ms / 1e3)
        if any(value is not None for value in inside.values()):
            others = {"--bucket-mb": bucket_mb, "--chart": chart, "--merge": merge}
            others |= {"--sharded": sharded or None, "--xla-flags": xla_flags or None}
            _require_no("a split model", others | {"--memory-gb": memory_gb})
            legs = planner.split(model, cluster, **_sizes(inside))
            if as_json:
                inputs = _inputs(asked, cluster) | inside
                typer.echo(json.dumps({"inputs": inputs, **legs.told()}))
            else:
                show_split(legs)
            return
        settings: dict[str, Any] = {
            "criterion": criterion,
            "quality": quality,
            "memory": None if memory_gb is None else memory_gb * 1e9,
            "inputs": _inputs(asked, cluster),
        }
        if sharded:
            others = {"--bucket-mb": bucket_mb, "--chart": chart, "--merge": merge}
            _require_no("--sharded", others)
        else:
            settings["merge"] = _rule(merge)
            settings["bucket_bytes"] = _bytes(bucket_mb)
        with busy(f"ranking for {params:g} parameters"):
            rank = planner.sharded if sharded else planner.rank
            ranking = rank(model, cluster, **settings)
            if chart:
                _draw(chart, model, cluster, settings)
    if xla_flags:
        bucket = ranking.choice.prediction.bucket_bytes
        typer.echo(planner.xla_flags(cluster, bucket))
    elif as_json:
        typer.echo(json.dumps(ranking.told()))
    else:
        show(ranking, cluster, top)


def _sizes(inside: dict[str, Any]) -> dict[str, Any]:
    """The sizes of a split model that were given; three of them must be."""
    for name in ("layers", "width", "tokens"):
        if inside[name] is None:
            raise ValueError(f"--{name} is needed to plan the legs inside a model")
    return {name: value for name, value in inside.items() if value is not None}


def _draw(path: Path, *what: Any) -> None:
    *inputs, settings = what
    try:
        with hosts.writing(path):
            planner.winners(path, *inputs, **settings)
    except OSError as error:
        raise ValueError(f"--chart {path}: {error.strerror}; name another") from error


def _network(path: Path | None, figures: dict[str, Any]) -> "planner.Network":
    """The network of a file, or of the figures, of which those not given are None."""
    given = {name: value for name, value in figures.items() if value is not None}
    if path is not None:
        if given:
            raise ValueError(
                f"network={path} says what {', '.join(given)} say as well: give the "
                "file, or the figures"
            )
        return planner.Network.load(path)
    if figures["workers"] is None or figures["bandwidth_gbps"] is None:
        raise ValueError(
            "workers and bandwidth-gbps are needed, or a file with --network"
        )
    now = {**_DEFAULTS, **given}
    for name in ("bandwidth_gbps", "inside_gbps", "codec_gbs", "window_mb"):
        _require_positive(name.replace("_", "-"), now[name])
    return planner.Network(
        workers=now["workers"],
        per_host=now["workers_per_host"],
        link=schedule.Link(
            now["latency_ms"] / 1e3,
            now["bandwidth_gbps"] * 1e9 / 8,
            now["window_mb"] * 2**20,
        ),
        inside=schedule.Link(
            now["inside_latency_ms"] / 1e3, now["inside_gbps"] * 1e9 / 8
        ),
        codec=planner.codecs(now["codec_gbs"] * 1e9),
        overlap=now["overlap"],
    )


def _require_no(option: str, others: dict[str, Any]) -> None:
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise ValueError(f"{option} has no {given[0]}: leave one of them out")


def _rule(merge: str | None) -> "merges.Rule | None":
    """The rule that a text names; the mean needs none."""
    rule = None if merge in (None, "mean") else merges.spelled(merge)
    if isinstance(rule, str):
        raise ValueError(
            f"merge={merge} is not planned by: give a rule, such as rda:length=mean"
        )
    return rule


def _require_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"{name}={value} must be finite and more than 0")
    if value not in HARDWARE:
        raise ValueError(f"{name}={value} must be {HARDWARE.broken(value)}")


def _whole(params: float) -> int:
    if not math.isfinite(params) or params != round(params) or params < 1:
        raise ValueError(f"params={params} must be a whole number, 1 or more")
    if params not in PARAMS:
        raise ValueError(f"params={params} must be {PARAMS.broken(params)}")
    return round(params)


def _bytes(bucket_mb: float | None) -> int | None:
    if bucket_mb is None:
        return None
    _require_positive("bucket-mb", bucket_mb)
    if bucket_mb not in MEBIBYTES:
        raise ValueError(f"bucket-mb={bucket_mb} must be {MEBIBYTES.broken(bucket_mb)}")
    return max(4, round(bucket_mb * 2**20))


def _inputs(asked: dict[str, Any], cluster: "planner.Network") -> dict[str, Any]:
    """The options and the network, in plain types."""
    plain = {k: str(v) if isinstance(v, Path) else v for k, v in asked.items()}
    return plain | {
        "params": _whole(asked["params"]),
        "workers": cluster.workers,
        "workers_per_host": cluster.per_host,
        "bandwidth_gbps": cluster.link.bandwidth * 8 / 1e9,
        "latency_ms": cluster.link.latency * 1e3,
        "window_mb": cluster.link.window and cluster.link.window / 2**20,
        "inside_gbps": cluster.inside.bandwidth * 8 / 1e9,
        "inside_latency_ms": cluster.inside.latency * 1e3,
        "codec_gbs": cluster.codec_rate("") / 1e9,
        "overlap": cluster.overlap,
    }

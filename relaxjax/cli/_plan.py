"""`relaxjax plan`: which relaxation pays, on a cluster that you may not have.

Parsing and printing only; the work is done in `relaxjax.plan`.
"""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import typer

from relaxjax import hosts, merges, schedule
from relaxjax import plan as planner
from relaxjax._core.foreign._ranges import HARDWARE, MEBIBYTES, PARAMS
from relaxjax.cli.common._errors import user_errors
from relaxjax.cli.common._takes import takes
from relaxjax.cli.options._plan import PlanOptions
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
_POWERS = {"K": "e3", "M": "e6", "B": "e9"}
_FIGURES = ("workers", "bandwidth_gbps", *_DEFAULTS)


_INSIDE = (
    *("tensor", "expert", "pipeline", "layers", "width", "tokens"),
    *("experts_per_token", "expert_params"),
)
_SHOWN = ("as_json", "xla_flags", "chart", "top")  # how it is shown, not what is asked


@takes(PlanOptions)
def plan(options: PlanOptions) -> None:
    """Predict step time, bytes and memory of each relaxation.

    Nothing is run: times are simulated from a model of links, codecs and overlap.
    Relaxations are listed with the measured quality of their training, fastest first.
    """
    inside = {name: getattr(options, name) for name in _INSIDE}
    with user_errors():
        cluster = _network(options)
        elements = _whole(options.params)
        model = planner.Model.of_size(elements, compute=options.compute_ms / 1e3)
        if any(value is not None for value in inside.values()):
            _show_split(options, model, cluster, inside)
            return
        settings = _settings(options, cluster)
        with busy(f"ranking for {elements:g} parameters"):
            rank = planner.sharded if options.sharded else planner.rank
            ranking = rank(model, cluster, **settings)
            if options.chart:
                _draw(options.chart, model, cluster, settings)
    if options.xla_flags and options.as_json:
        raise typer.BadParameter("--xla-flags has no --json: leave one of them out")
    if options.xla_flags:
        bucket = ranking.choice.prediction.bucket_bytes
        typer.echo(planner.xla_flags(_of_gpus(options, cluster), bucket))
    elif options.as_json:
        typer.echo(json.dumps(ranking.told()))
    else:
        show(ranking, cluster, options.top)


def _show_split(
    options: PlanOptions,
    model: "planner.Model",
    cluster: "planner.Network",
    inside: dict[str, Any],
) -> None:
    """The legs inside a model, which are not ranked."""
    others = ("bucket_mb", "chart", "merge", "sharded", "xla_flags", "memory_gb")
    _require_no("a split model", options, others)
    legs = planner.split(model, cluster, **_sizes(inside))
    if options.as_json:
        inputs = _inputs(options, cluster) | inside
        typer.echo(json.dumps({"inputs": inputs, **legs.told()}))
    else:
        show_split(legs)


def _settings(options: PlanOptions, cluster: "planner.Network") -> dict[str, Any]:
    """Arguments of `planner.rank`, or of `planner.sharded`."""
    memory = options.memory_gb
    settings = {
        "criterion": options.criterion,
        "quality": options.quality,
        "memory": None if memory is None else memory * 1e9,
        "inputs": _inputs(options, cluster),
    }
    if options.sharded:
        _require_no("--sharded", options, ("bucket_mb", "chart", "merge"))
        return settings
    rule, bucket_bytes = _rule(options.merge), _bytes(options.bucket_mb)
    return settings | {"merge": rule, "bucket_bytes": bucket_bytes}


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


def _network(options: PlanOptions) -> "planner.Network":
    """The network of a file, or of the figures, of which those not given are None."""
    path, figures = options.network, {name: getattr(options, name) for name in _FIGURES}
    given = {name: value for name, value in figures.items() if value is not None}
    if path is not None:
        if given:
            raise ValueError(
                f"network={path} says what {', '.join(given)} say as well: give the "
                "file, or the figures"
            )
        return planner.Network.load(path)
    if options.workers is None or options.bandwidth_gbps is None:
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


def _of_gpus(options: PlanOptions, cluster: "planner.Network") -> "planner.Network":
    """The network without a window that nobody has stated: NCCL has many streams."""
    if options.network is not None or options.window_mb is not None:
        return cluster
    link = dataclasses.replace(cluster.link, window=None)
    return dataclasses.replace(cluster, link=link)


def _require_no(what: str, options: PlanOptions, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(options, name)
        if value is not None and value is not False:  # 0 is given, too
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{what} has no {option}: leave one of them out")


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


def _whole(text: str) -> int:
    last = text[-1:]
    try:
        params = float(text[:-1] + _POWERS.get(last.upper(), last))
    except ValueError:
        raise ValueError(
            f"params={text!r} must be a number, as in 340e6, or one that ends in k, M "
            "or B, as in 40k, 300M or 1.5B"
        ) from None
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


def _inputs(options: PlanOptions, cluster: "planner.Network") -> dict[str, Any]:
    """The options and the network, in plain types."""
    asked = {k: v for k, v in vars(options).items() if k not in (*_SHOWN, *_INSIDE)}
    plain = {k: str(v) if isinstance(v, Path) else v for k, v in asked.items()}
    return plain | {
        "params": _whole(options.params),
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

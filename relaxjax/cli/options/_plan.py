"""What `relaxjax plan` is asked for; None leaves a value to its default, or out."""

from dataclasses import dataclass
from pathlib import Path

from relaxjax.cli.common._takes import option


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The options of `relaxjax plan`."""

    params: str = option(
        "Number of the model's parameters, as in 340e6 or 340M.", default=...
    )
    compute_ms: float = option(
        "Time of a step without communication, in ms.", default=...
    )
    workers: int | None = option("Workers on all hosts.")
    bandwidth_gbps: float | None = option("Bandwidth of a host's link in Gbit/s.")
    latency_ms: float | None = option(
        "Latency of a message between hosts in ms; default: 0.05."
    )
    window_mb: float | None = option(
        "Most MiB on their way between two hosts, over all TCP streams; "
        "default: 6, as Linux allows one stream."
    )
    workers_per_host: int | None = option("Workers that share a host; default: 1.")
    inside_gbps: float | None = option("Bandwidth in a host in Gbit/s; default: 800.")
    inside_latency_ms: float | None = option(
        "Latency of a message in a host in ms; default: 0.005."
    )
    codec_gbs: float | None = option(
        "Speed at which quantize8 encodes or decodes float32 in GB/s, other "
        "compressors in proportion; default: 200."
    )
    network: Path | None = option(
        "JSON file of a relaxjax.plan.Network, in place of the options on "
        "workers, links, codec and overlap."
    )
    bucket_mb: float | None = option("Bucket size in MiB; searched by default.")
    overlap: bool | None = option(
        "Whether messages travel during the backward pass (on CPUs they do "
        "not); default: yes.",
        "--overlap/--no-overlap",
    )
    criterion: str = option(
        "What to choose: fastest or fewest_bytes.", default="fastest"
    )
    quality: str = option(
        "Worst quality that may be chosen: exact, equal, close, lossy or "
        "unmeasured. All are ranked.",
        default="equal",
    )
    memory_gb: float | None = option(
        "GB for a worker's params, gradient, Adam and residuals."
    )
    merge: str | None = option(
        "Rule by which contributions merge, as in clipped or trimmed:b=1: "
        "ranks what can merge by it, with what it sends besides."
    )
    sharded: bool = option(
        "Rank ways to shard weights (relaxjax.fsdp) instead.",
        "--sharded",
        default=False,
    )
    tensor: int | None = option(
        "Workers that share each product: shows legs inside instead."
    )
    expert: int | None = option("Workers that hold the experts of a layer, likewise.")
    pipeline: int | None = option("Stages of a pipeline, likewise.")
    layers: int | None = option("Layers of a split model.")
    width: int | None = option("Elements of a token between layers.")
    tokens: int | None = option("Tokens of a worker in a step, over all microbatches.")
    experts_per_token: int | None = option("Experts that a token goes to; default: 1.")
    expert_params: float | None = option("Share of the params that are in experts.")
    top: int = option("Rows of the table.", default=20, min=1)
    as_json: bool = option("Print only JSON.", "--json", default=False)
    xla_flags: bool = option(
        "Print XLA_FLAGS for GPUs on this network instead.",
        "--xla-flags",
        default=False,
    )
    chart: Path | None = option(
        "PNG file for a chart of winners by bandwidth and latency."
    )

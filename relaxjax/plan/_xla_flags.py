"""A network as XLA's scheduler for GPUs takes it, and a bucket as it joins arrays.

Source: XLA's options of its analytical latency estimator (`sol_gpu_cost_model.h` and
`debug_options_flags.cc`), whose speed "gbps" is in GB/s, of one GPU in one direction.

    nic_speed_gbps = rate / (1e9 per_host)         the workers of a host share its link
    rtt_us + chunk_prep_us = 1e6 latency           what each message of a ring takes
    gpus_per_node = partition_size = per_host      (JAX 0.12 asks the second as well)
    combine_threshold_bytes = bucket_bytes         for each kind of collective

On a single host XLA would go by figures of its own, so there each worker is described
as a node, and the link inside as its network. How long NCCL takes to begin, and the
size of its chunks, are left to XLA, which has figures for each card.
"""

from relaxjax.plan._network import Network, require_network

_JOINED = ("all_reduce", "all_gather", "reduce_scatter", "collective_permute")


def xla_flags(network: Network, bucket_bytes: int = 8 * 2**20) -> str:
    """What to set as `XLA_FLAGS` where GPUs train over this network.

    The scheduler moves the starts of transfers ahead of computation by what it believes
    of the network, by default a fast one. No number of a training changes, and buckets
    of relaxjax, which are chained, are not joined.

    Args:
      network: workers, hosts and their link.
      bucket_bytes: most bytes of arrays that XLA joins into one collective, of each
        kind; the `bucket_bytes` of a plan's choice.

    Raises:
      ValueError: `bucket_bytes < 1`.

    Example:
      >>> from relaxjax import plan, schedule
      >>> network = plan.Network(
      ...     workers=32, per_host=8, link=schedule.Link(2e-5, 5e10))
      >>> _, _, options, joined, *_ = plan.xla_flags(network, 2**22).split()
      >>> print(*options.split("=", 1)[1].split(","))
      nic_speed_gbps=6.25 rtt_us=19 chunk_prep_us=1 gpus_per_node=8 partition_size=8
      >>> print(joined)
      --xla_gpu_all_reduce_combine_threshold_bytes=4194304
    """
    require_network("xla_flags", network)
    if bucket_bytes < 1:
        raise ValueError(f"xla_flags: bucket_bytes={bucket_bytes} must be 1 or more")
    link, per_host = network.link, network.per_host
    if network.workers == per_host:
        link, per_host = network.inside, 1
    known = {
        "nic_speed_gbps": f"{link.rate / per_host / 1e9:.6g}",
        "rtt_us": max(1, round(1e6 * link.latency) - 1),
        "chunk_prep_us": 1,
        "gpus_per_node": per_host,
        "partition_size": per_host,
    }
    options = ",".join(f"{name}={value}" for name, value in known.items())
    flags = {
        "enable_latency_hiding_scheduler": "true",
        "enable_analytical_sol_latency_estimator": "true",
        "analytical_latency_estimator_options": options,
    } | {f"{kind}_combine_threshold_bytes": bucket_bytes for kind in _JOINED}
    return " ".join(f"--xla_gpu_{name}={value}" for name, value in flags.items())

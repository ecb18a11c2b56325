"""Flags of XLA, made from a network: its units, and whether this XLA knows them."""

import os
import subprocess
import sys

import pytest

from relaxjax import plan, schedule

FAST = schedule.Link(latency=2e-5, bandwidth=5e10)  # 400 Gbit/s


def flags_of(text: str) -> dict[str, str]:
    return dict(flag.removeprefix("--xla_gpu_").split("=", 1) for flag in text.split())


def test_units_are_those_of_xla():
    """A GPU's share in GB/s, a message in whole microseconds, bytes."""
    network = plan.Network(workers=32, per_host=8, link=FAST)
    flags = flags_of(plan.xla_flags(network, bucket_bytes=3 * 2**20))
    options = flags.pop("analytical_latency_estimator_options")
    speed, *rest = options.split(",")
    assert speed == "nic_speed_gbps=6.25"
    assert rest[:2] == ["rtt_us=19", "chunk_prep_us=1"]
    assert rest[2:] == ["gpus_per_node=8", "partition_size=8"]
    joined = {k for k, v in flags.items() if k.endswith("_combine_threshold_bytes")}
    assert len(joined) == 4
    assert {flags[name] for name in joined} == {str(3 * 2**20)}
    assert {flags[name] for name in flags if name not in joined} == {"true"}


@pytest.mark.parametrize(("latency", "rtt"), [(0.0, 1), (1e-7, 1), (5e-2, 5e4 - 1)])
def test_a_round_trip_is_never_zero(latency, rtt):
    network = plan.Network(workers=2, link=schedule.Link(latency, 1e9))
    assert f"rtt_us={rtt:.0f}," in plan.xla_flags(network)


def test_a_long_link_is_as_fast_as_its_window():
    """6 MiB for each round trip of 0.1 s, and not 10 GB/s."""
    link = schedule.Link(latency=5e-2, bandwidth=1e10, window=6 * 2**20)
    network = plan.Network(workers=2, link=link)
    assert "nic_speed_gbps=0.0629146," in plan.xla_flags(network)


def test_on_one_host_each_worker_is_a_node():
    """XLA has figures of its own for links inside a node, and hears of no others."""
    network = plan.Network(workers=8, per_host=8, link=FAST)
    options = flags_of(plan.xla_flags(network))["analytical_latency_estimator_options"]
    apart = plan.Network(workers=8, link=network.inside)
    assert options in plan.xla_flags(apart)
    assert options.startswith("nic_speed_gbps=100,")


@pytest.mark.parametrize("size", [0, -1])
def test_a_bucket_of_no_bytes_is_refused(size):
    with pytest.raises(ValueError, match=f"bucket_bytes={size} must be 1 or more"):
        plan.xla_flags(plan.Network(workers=2), bucket_bytes=size)


@pytest.mark.long
def test_this_xla_knows_them():
    """It stops at a flag that it does not know."""
    text = plan.xla_flags(plan.Network(workers=16, per_host=8, link=FAST))
    environ = {**os.environ, "JAX_PLATFORMS": "cpu"}
    script = "import jax; print(jax.device_count())"
    for flags, known in ((text, True), (f"{text} --xla_gpu_no_such_flag=1", False)):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environ | {"XLA_FLAGS": flags},
            capture_output=True,
            text=True,
        )
        assert (done.returncode == 0) is known, done.stderr
        assert known or "no_such_flag" in done.stderr

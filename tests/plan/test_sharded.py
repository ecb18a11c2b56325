"""Ways to shard weights: bytes of the code that is shown, memory by hand, choices."""

import jax
import jax.numpy as jnp
import optax
import pytest

import relaxjax
from relaxjax import emulate, fsdp, plan
from relaxjax.schedule import Link

PARAMS = {f"w{i}": jax.ShapeDtypeStruct((64, 96), jnp.float32) for i in range(8)}
SIZE = 8 * 64 * 96
MODEL = plan.Model(params=PARAMS, compute=0.01)
LINK = Link(1e-4, 1e8)
ONE = plan.Network(workers=8, link=LINK, overlap=False)
TWO = plan.Network(workers=8, per_host=4, link=LINK, inside=Link(1e-6, 1e10))
AXES = {1: {"data": 8}, 4: {"host": 2, "device": 4}}
WHOLE = ("all_reduce", "parameter_server")


def rows(network: plan.Network) -> dict[str, plan.Row]:
    found = plan.sharded(MODEL, network, quality="unmeasured").rows
    return {row.label: row for row in found}


@pytest.mark.parametrize("network", [ONE, TWO], ids=["one level", "two"])
def test_the_line_that_is_shown_sends_what_is_said(network):
    mesh = emulate(AXES[network.per_host])
    for label, row in rows(network).items():
        if label in WHOLE:
            continue
        names = {"relaxjax": relaxjax, "optimizer": optax.sgd(0.1), "mesh": mesh}
        names |= {"loss": sum, "params": {"w": jnp.ones(5)}}
        exec(row.tx, names)
        assert isinstance(names["loss"], fsdp.Gathered)
        sent = fsdp.sent_bytes(names["loss"], PARAMS, mesh)
        assert row.prediction.nbytes == sent.total, label


def test_a_copy_inside_hosts_needs_hosts():
    assert not [label for label in rows(ONE) if "secondary" in label]
    assert [label for label in rows(TWO) if "secondary" in label]


def test_memory_is_counted_by_what_is_held():
    """Params, gradient and two moments in slices; weights that were gathered."""
    held = {label: row.prediction.memory / 4 / SIZE for label, row in rows(TWO).items()}
    assert held == pytest.approx(
        {
            "all_reduce": 4,
            "parameter_server": 2 + 2 / 8,
            "fsdp": 4 / 8 + 1,
            "fsdp+reshard": 4 / 8 + 2 / 8,
            "fsdp weights=8": 4 / 8 + 1,
            "fsdp weights=8 gradients=4": 4 / 8 + 1,
            "fsdp+reshard weights=8 gradients=4": 4 / 8 + 2 / 8,
            "fsdp+secondary weights=8 gradients=4": 4 / 8 + 2 / 8 + 8 / 32 / 4,
            "fsdp+difference weights=4 gradients=4": 4 / 8 + 1 + 1,
        }
    )


def test_seconds_are_those_of_a_gather_and_a_scatter():
    """On one level, one after the other: seven latencies and seven slices each."""
    once = 7 * 1e-4 + 4 * SIZE * 7 / 8 / 1e8
    found = rows(ONE)
    assert found["fsdp"].seconds == pytest.approx(0.01 + 2 * once)
    assert found["fsdp+reshard"].seconds == pytest.approx(0.01 + 3 * once)


def test_seconds_in_one_host_are_those_of_its_links():
    inside = Link(1e-3, 1e9)
    one_host = plan.Network(workers=8, per_host=8, inside=inside, overlap=False)
    once = 7 * 1e-3 + 4 * SIZE * 7 / 8 / 1e9
    assert rows(one_host)["fsdp"].seconds == pytest.approx(0.01 + 2 * once)


def test_seconds_of_two_levels():
    """Four workers of a host share its link; each passes two slices on inside it."""
    inside = Link(1e-5, 1e9)
    two = plan.Network(workers=8, per_host=4, link=LINK, inside=inside, overlap=False)
    across = 1e-4 + 4 * (4 * SIZE / 8) / 1e8
    within = 3 * 1e-5 + 3 * 2 * (4 * SIZE / 8) / 1e9
    assert rows(two)["fsdp"].seconds == pytest.approx(0.01 + 2 * (across + within))


def test_slow_links_are_spared_by_a_copy_inside_hosts():
    found = rows(TWO)
    reshard, secondary, plain = (
        found[f"fsdp{x} weights=8 gradients=4"].prediction.messages
        for x in ("+reshard", "+secondary", "")
    )
    assert plain < secondary < reshard


def test_what_fits_is_chosen():
    ample = plan.sharded(MODEL, ONE)
    assert ample.choice.label == "all_reduce"
    few = plan.sharded(MODEL, ONE, memory=4 * SIZE * 2)
    assert few.choice.label == "fsdp"
    assert few.choice.quality.name == "exact"
    fewer = plan.sharded(MODEL, ONE, memory=4 * SIZE)
    assert fewer.choice.label == "fsdp+reshard"
    least = plan.sharded(MODEL, ONE, criterion="fewest_bytes", quality="unmeasured")
    assert least.choice.label == "fsdp+difference weights=4 gradients=4"
    with pytest.raises(ValueError, match=r"closest is fsdp\+reshard .*more devices"):
        plan.sharded(MODEL, ONE, memory=SIZE)
    with pytest.raises(ValueError, match="criterion='slowest'"):
        plan.sharded(MODEL, ONE, criterion="slowest")

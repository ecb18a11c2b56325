"""Legs inside a split model: stated, planned and compiled bytes, seconds by hand."""

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import activations, compression, plan
from relaxjax.plan.inside._work import traffic_of
from relaxjax.schedule import Link
from tests.helpers import mesh_of

MODEL = plan.Model.of_size(1000, compute=0.5)
SIZES = {"layers": 3, "width": 64, "tokens": 12}
BF16, ITEM = jnp.bfloat16, 12 * 64 * 2  # bytes of all tokens
NETWORK = plan.Network(
    workers=16, per_host=4, link=Link(1e-2, 1e6), inside=Link(1e-3, 1e8)
)
BOTH: dict[str, Any] = {
    "forward": compression.mx("e4m3"),
    "backward": compression.mx("e5m2"),
}


def legs(network: plan.Network = NETWORK, **asked: Any) -> dict[Any, plan.Leg]:
    found = plan.split(MODEL, network, **{**SIZES, **asked}).legs
    return {(leg.axis, leg.forward, leg.backward): leg for leg in found}


SUMS = ("all_reduce", "copy")


def f_and_g(x):
    inside = activations.copy(x, "data", **BOTH)
    return activations.all_reduce(2 * inside, "data", **BOTH)


def there_and_back(x):
    swap = partial(
        activations.all_to_all, axis_name="data", split_axis=0, concat_axis=0, **BOTH
    )
    return swap(2 * swap(x))


def onward(x):
    return activations.send(x, "data", [(i, i + 1) for i in range(3)], **BOTH)


PROGRAMS = {
    "tensor": (f_and_g, ("copy", "all_reduce"), (12, 64)),
    "expert": (there_and_back, ("all_to_all", "all_to_all"), (4, 3, 64)),
    "pipeline": (onward, ("send",), (12, 64)),
}


@pytest.mark.parametrize("axis", PROGRAMS)
def test_planned_bytes_are_stated_and_compiled_ones(axis):
    """A block of a layer has f and g once, or the way there and back."""
    fn, collectives, shape = PROGRAMS[axis]
    blocks = {"tensor": 2, "expert": 1, "pipeline": 1}[axis]
    asked: dict[str, Any] = {"expert_params": 0.5} if axis == "expert" else {}
    leg = legs(**{axis: 4, "layers": 1}, **asked)[axis, "e4m3", "e5m2"]
    x = jax.ShapeDtypeStruct(shape, BF16)
    stated = [activations.sent_bytes(c, x, 4, **BOTH) for c in collectives]
    one = [sum(way) for way in zip(*stated, strict=True)]
    assert [*leg.sent] == [blocks * nbytes for nbytes in one]

    def both(x, g):
        y, pull = jax.vjp(fn, x)
        return y, *pull(g)

    mapped = jax.shard_map(
        both,
        mesh=mesh_of(4),
        in_specs=P("data"),
        out_specs=P("data"),
        check_vma=False,
    )
    whole = jax.ShapeDtypeStruct((4 * shape[0], *shape[1:]), BF16)
    compiled = relaxjax.compiled_wire_bytes(jax.jit(mapped), whole, whole)
    assert blocks * compiled == leg.sent.total


def test_layers_are_shared_by_stages_and_tokens_by_experts():
    plain = ("", "")
    whole = legs(tensor=2, expert=2, pipeline=2, expert_params=0.5)
    assert whole["tensor", *plain].sent == (2 * 2 * ITEM, 2 * 2 * ITEM)
    assert whole["expert", *plain].sent == (2 * 2 * ITEM / 2, 2 * 2 * ITEM / 2)
    assert whole["pipeline", *plain].sent == (ITEM, ITEM)
    twice = legs(expert=2, expert_params=0.5, experts_per_token=2)
    assert twice["expert", *plain].sent.forward == 3 * 2 * 2 * ITEM / 2


def test_seconds_inside_a_host_and_between_hosts():
    """Neighbors of the first axis share a host; its workers share a link."""
    found = legs(tensor=4, pipeline=4)
    shots = 1.5 * ITEM  # an all-reduce of four, one layer: 2 forward, 2 backward
    assert found["tensor", "", ""].seconds == pytest.approx(
        4 * (2 * 1e-3 + shots / 1e8)
    )
    assert found["pipeline", "", ""].seconds == pytest.approx(
        2 * (1e-2 + 4 * ITEM / 1e6)
    )


@pytest.mark.parametrize("host", [1, 2, 4, 8])
@pytest.mark.parametrize("sizes", [(1, 2), (1, 4), (1, 16), (2, 2), (2, 4), (4, 2)])
def test_a_send_crosses_hosts_where_its_stages_do(sizes, host):
    """Counted: neighbors on "tensor" are neighbors on a host, then those in front."""
    (tensor, stages), workers = sizes, 16
    leaving = [0] * (workers // host)
    for i in range(workers):
        is_last = i // tensor % stages == stages - 1
        leaving[i // host] += not is_last and (i + tensor) // host != i // host
    network = replace(NETWORK, workers=workers, per_host=host)
    found = traffic_of("send", 10, 1, stages, tensor, network)
    assert found.line == 10 * max(leaving)


def test_seconds_of_an_axis_over_two_hosts():
    """Of eight experts four share a host: three messages of seven stay inside."""
    found = legs(expert=8, expert_params=0.5)
    part = 8 * 2 * 64 * 2 / 8  # 12 tokens fill seats for 16
    once = 1e-2 + 4 * 4 * part / 1e6 + 1e-3 + 3 * part / 1e8
    assert found["expert", "", ""].seconds == pytest.approx(3 * 2 * 2 * once)
    of_sums = legs(tensor=8)["tensor", "", ""]
    once = 2 * 1e-2 + 4 * ITEM / 1e6 + 2 * 1e-3 + 3 * ITEM / 4 / 1e8
    assert of_sums.seconds == pytest.approx(3 * 2 * 2 * once)


def test_a_stage_beside_its_neighbor_on_the_host():
    """One of four workers sends over the link; the others send inside."""
    found = legs(pipeline=8)
    once = 1e-2 + ITEM / 1e6 + 1e-3 + ITEM / 1e8
    assert found["pipeline", "", ""].seconds == pytest.approx(2 * once)


def by_hand(workers: int, host: int, n: int, stride: int) -> tuple[int, int, int]:
    """Messages from the busiest host, all to all and onward; most of a group on one."""
    out, onward, near = [0] * (workers // host), [0] * (workers // host), 0
    for w in range(workers):
        place = w // stride % n
        group = [w + (k - place) * stride for k in range(n)]
        hosts = [peer // host for peer in group]
        here = w // host
        out[here] += sum(other != here for other in hosts)
        near = max(near, hosts.count(here))
        onward[here] += place < n - 1 and hosts[place + 1] != here
    return max(out), max(onward), near


@pytest.mark.parametrize("workers", [12, 16, 24, 36])
def test_groups_may_straddle_hosts(workers):
    divisors = [d for d in range(1, workers + 1) if workers % d == 0]
    for host, n, stride in itertools.product(divisors, divisors[1:], divisors):
        if workers % (n * stride):
            continue
        network = replace(NETWORK, workers=workers, per_host=host)
        out, onward, near = by_hand(workers, host, n, stride)
        swap = traffic_of("all_to_all", n - 1, 1, n, stride, network)
        assert (swap.line, swap.inside) == (out, near - 1), (host, n, stride)
        send = traffic_of("send", 1, 1, n, stride, network)
        assert (send.line, send.hops) == (onward, onward > 0)


def test_codecs_take_the_device():
    slow = plan.Network(workers=4, per_host=4, inside=Link(), codec={"": 1e4})
    fast = plan.Network(workers=4, per_host=4, inside=Link(), codec={"": 1e30})
    seconds = [legs(n, tensor=4)["tensor", "e4m3", ""].seconds for n in (slow, fast)]
    passes = 3 * 2 * (3 + 1 / 4) * 4 * 12 * 64  # encoded and decoded, forward alone
    assert seconds[0] - seconds[1] == pytest.approx(passes / 1e4)


def test_memory_is_of_the_params_that_a_worker_has():
    asked = {"tensor": 2, "expert": 4, "pipeline": 2, "expert_params": 0.8}
    found = plan.split(MODEL, NETWORK, **SIZES, **asked)
    assert found.memory == pytest.approx(16 * (200 + 800 / 4) / 4)
    assert found.told()["memory_bytes"] == found.memory


def test_the_codes_that_are_named_are_those_that_were_counted():
    for leg in legs(tensor=2).values():
        codes = eval(f"dict({leg.codes})", {"relaxjax": relaxjax})
        x = jax.ShapeDtypeStruct((12, 64), BF16)
        sent = [activations.sent_bytes(c, x, 2, **codes) for c in SUMS]
        assert leg.sent == (6 * sent[0].forward, 6 * sent[1].backward)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "tensor=1, expert=1, pipeline=1 split nothing"),
        ({"tensor": 3}, "groups of 3 workers, and workers=16 must be a multiple"),
        ({"tensor": 0}, "tensor=0"),
        ({"tensor": 2, "width": 1.5}, "width=1.5"),
        ({"tensor": 2, "tokens": 10**13}, "tokens=10000000000000 must be .* or less"),
        ({"expert": 2}, "expert=2 with expert_params=0.0"),
        ({"tensor": 2, "expert_params": 0.5}, "expert=1 with expert_params=0.5"),
        ({"expert": 2, "expert_params": 1.5}, "from 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused(asked, message):
    with pytest.raises(ValueError, match=message):
        legs(**asked)

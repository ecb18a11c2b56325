"""wire_bytes against the closed formulas, and its reading of a program."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from jax import lax
from jax.extend.core import Primitive

import relaxjax
from relaxjax import (
    accumulate,
    all_reduce,
    emulate,
    skip_nonfinite,
    topology,
    wire_bytes,
)
from relaxjax._core._cond import when
from relaxjax.collectives import ring_wire_bytes
from relaxjax.programs._jaxpr_bytes import _FREE, _VARIANTS, COLLECTIVES
from relaxjax.schedule import plan_buckets
from tests import helpers
from tests.helpers import mesh_of

PARAMS = helpers.problem()


def psum_bytes(tree, n: int) -> int:
    """The bytes of small float32 leaves, hence of one operand."""
    return 2 * (n - 1) * -(-sum(x.size for x in jax.tree.leaves(tree)) // n) * 4


@pytest.mark.parametrize("n", [1, 2, 3, 8, 16])
def test_psum(n):
    assert wire_bytes(all_reduce("data"), PARAMS, emulate(n)) == psum_bytes(PARAMS, n)


@pytest.mark.few(7)
@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("bucket_bytes", [24, 100, 10**6])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_ring_in_buckets(n, bucket_bytes, dtype):
    params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, dtype), PARAMS)
    tx: Any = all_reduce("data", algorithm="ring", bucket_bytes=bucket_bytes)
    buckets = plan_buckets(params, bucket_bytes=bucket_bytes)
    flat = [
        jax.ShapeDtypeStruct((sum(s.size for s in b.segments),), dtype) for b in buckets
    ]
    expected = sum(ring_wire_bytes(x, n) for x in flat)
    assert wire_bytes(tx, params, emulate(n)) == expected
    assert wire_bytes(tx, params, mesh_of(n)) == expected


def test_two_axes():
    tx: Any = all_reduce(("host", "device"), algorithm="ring")
    x = jax.ShapeDtypeStruct((103,), jnp.float32)
    mesh = emulate({"host": 2, "device": 4})
    expected = ring_wire_bytes(x, 4) + ring_wire_bytes(x, 2)
    assert wire_bytes(tx, x, mesh) == expected


def test_only_the_steps_that_communicate():
    tx: Any = accumulate(optax.chain(all_reduce("data"), optax.adam(1e-3)), every=4)
    once = psum_bytes(PARAMS, 4)
    counts = [wire_bytes(tx, PARAMS, emulate(4), start=i) for i in range(8)]
    assert counts == [0, 0, 0, once, 0, 0, 0, once]
    assert wire_bytes(tx, PARAMS, emulate(4), steps=8) == 2 * once


def test_skip_nonfinite_sends_one_integer_more():
    tx: Any = skip_nonfinite(all_reduce("data"), "data")
    assert wire_bytes(tx, PARAMS, emulate(4)) == psum_bytes(PARAMS, 4) + 6 * 4


def transformation(update):
    def init(params):
        del params
        return jnp.zeros((), jnp.int32)

    def update_fn(updates, state, params=None):
        del params
        return update(updates, state), state + 1

    return optax.GradientTransformation(init, update_fn)


def relu_of_largest(u):
    return jax.nn.relu(lax.pmax(u, "data"))


X = jax.ShapeDtypeStruct((10,), jnp.float32)
ROWS = jax.ShapeDtypeStruct((8,), jnp.float32)
PROGRAMS = {
    # name: (update, bytes in steps 0, 1 and 2 for 4 workers)
    "scan": (
        lambda u, _: lax.scan(lambda c, _: (lax.psum(c, "data"), None), u, None, 3)[0],
        [3 * 72] * 3,
    ),
    "branch in a scan, on a constant of the scan": (
        lambda u, i: lax.scan(
            lambda c, x: (
                lax.cond(i == 1, lambda: lax.psum(c, "data"), lambda: c) + x,
                x,
            ),
            u,
            jnp.ones((5, 10)),
        )[0],
        [0, 5 * 72, 0],
    ),
    "branch on data": (
        lambda u, _: lax.cond(u[0] > 0, lambda: lax.psum(u, "data"), lambda: u),
        [72] * 3,
    ),
    "branch on the counter": (
        lambda u, i: lax.cond(i % 2 == 1, lambda: lax.psum(u, "data"), lambda: u),
        [0, 72, 0],
    ),
    "turn or none, on the counter": (
        lambda u, i: when(i % 2 == 1, lambda u: lax.psum(u, "data"), u),
        [0, 72, 0],
    ),
    "turn or none, on data": (
        lambda u, _: when(u[0] > 0, lambda u: lax.psum(u, "data"), u),
        [72] * 3,
    ),
    "turns that each know whether it is the last": (
        lambda u, i: when(
            i > 0, lambda u: when(i > 1, lambda u: lax.psum(u, "data"), u), u
        ),
        [0, 0, 72],
    ),
    "switch": (
        lambda u, i: lax.switch(
            i,
            [
                lambda u: u,
                lambda u: lax.ppermute(u, "data", [(0, 1), (1, 0)]),
                lambda u: lax.all_gather(u, "data").sum(0),
            ],
            u,
        ),
        [0, 40, 120],
    ),
    "permute to oneself": (
        lambda u, _: lax.ppermute(u, "data", [(i, i) for i in range(4)]),
        [0] * 3,
    ),
    "different senders do not add up": (
        lambda u, _: (
            lax.ppermute(u, "data", [(0, 1)]) + lax.ppermute(u, "data", [(2, 3)])
        ),
        [40] * 3,
    ),
    "scatter and all-to-all": (
        lambda u, _: (
            lax.psum_scatter(jnp.tile(u, 2)[:12], "data", tiled=True)[0]
            + lax.all_to_all(jnp.tile(u, 2)[:12], "data", 0, 0, tiled=True)[0]
            + u
        ),
        [3 * 3 * 4 + 3 * 3 * 4] * 3,
    ),
    "jit, remat and custom derivatives": (
        lambda u, _: jax.jit(jax.checkpoint(relu_of_largest))(u),
        [72] * 3,
    ),
    "silent loop": (
        lambda u, _: lax.while_loop(lambda c: c[0] < 1, lambda c: c + 1, u),
        [0] * 3,
    ),
    "worker's own branch": (
        lambda u, _: lax.cond(
            lax.axis_index("data") == 0, lambda: u, lambda: lax.psum(u, "data")
        ),
        [72] * 3,
    ),
}


@pytest.mark.parametrize(("update", "expected"), PROGRAMS.values(), ids=PROGRAMS)
def test_reads_programs(update, expected):
    tx: Any = transformation(update)
    counts = [wire_bytes(tx, X, emulate(4), start=i) for i in range(3)]
    assert counts == expected


def scattered(u: Any, start: bool) -> Any:
    if not start:
        return jnp.tile(lax.psum_scatter(u, "data", tiled=True), 4)
    parallel = pytest.importorskip("jax._src.lax.parallel")
    if not hasattr(parallel, "psum_scatter_start"):
        pytest.skip("this JAX has no collectives that start and end apart")
    return jnp.tile(parallel.psum_scatter_start(u, "data", tiled=True).done(), 4)


def test_collectives_that_start_and_end_apart_count_once():
    sent = [
        wire_bytes(transformation(lambda u, _, s=s: scattered(u, s)), ROWS, emulate(4))
        for s in (False, True)
    ]
    assert sent == [3 * 2 * 4] * 2


def ragged(u: Any, _: Any) -> Any:
    count = jnp.full(4, u.shape[0] // 4, jnp.int32)
    at = jnp.arange(4, dtype=jnp.int32) * count
    return lax.ragged_all_to_all(u, u, at, count, at, count, axis_name="data")


def test_what_only_the_run_knows_is_not_counted_as_nothing():
    for update in (ragged, lambda u, step: jax.jit(ragged)(u, step)):
        with pytest.raises(ValueError, match="ragged_all_to_all over the axis 'data'"):
            wire_bytes(transformation(update), ROWS, emulate(4))


def test_every_collective_of_jax_is_counted_or_refused():
    """What a newer JAX has besides would count as nothing."""
    parallel = pytest.importorskip("jax._src.lax.parallel")
    made = [x for k, x in vars(parallel).items() if k.endswith("_p")]
    names = {x.name.removesuffix("_p") for x in made if isinstance(x, Primitive)}
    free = {name for name in names if _FREE.fullmatch(name)}
    counted = {
        name
        for name in names - free
        if _VARIANTS.get(base := name.removesuffix("_start"), base) in COLLECTIVES
    }
    assert names - free - counted <= {"ragged_all_to_all", "psend", "precv"}
    assert not free & {*COLLECTIVES, *_VARIANTS}
    assert {"psum", "all_gather"} <= counted


def test_collective_in_a_loop_of_unknown_length():
    tx: Any = transformation(
        lambda u, _: lax.while_loop(
            lambda c: c[0] < 1, lambda c: c + lax.psum(c, "data"), u
        )
    )
    with pytest.raises(ValueError, match="loop whose number of turns is not known"):
        wire_bytes(tx, X, emulate(4))


@pytest.mark.parametrize(
    "bad",
    [{"steps": 0}, {"start": -1}, {"steps": 1.5}, {"start": 0.5}],
)
def test_bad_steps(bad):
    (name,) = bad
    with pytest.raises(ValueError, match=f"wire_bytes: {name}=.* a whole number"):
        wire_bytes(all_reduce("data"), X, emulate(4), **bad)


def rounds(n: int) -> dict[str, tuple[Any, int]]:
    """Transformations, and the steps after which they send again as they did."""
    adam, ring = optax.adam(1e-3), topology.ring(n)
    return {
        "all_reduce": (optax.chain(relaxjax.all_reduce("data"), adam), 1),
        "local_sgd": (optax.chain(adam, relaxjax.local_sgd("data", 4)), 4),
        "diloco": (relaxjax.diloco(adam, "data", 25), 25),
        "streaming": (relaxjax.streaming_diloco(adam, "data", 6, fragments=2), 6),
        "gossip": (optax.chain(adam, relaxjax.gossip("data", ring, every=3)), 3),
        "accumulate": (relaxjax.accumulate(relaxjax.all_reduce("data"), 5), 5),
        "two": (
            optax.chain(
                adam,
                relaxjax.gossip("data", ring, every=3),
                relaxjax.local_sgd("data", 2),
            ),
            6,
        ),
    }


@pytest.mark.parametrize("name", rounds(4))
def test_without_steps_it_is_the_mean_step_of_a_period(name):
    tx, period = rounds(4)[name]
    params, mesh = {"w": jnp.zeros((30, 20)), "b": jnp.zeros(7)}, relaxjax.emulate(4)
    whole = wire_bytes(tx, params, mesh, steps=period)
    assert whole > 0
    assert wire_bytes(tx, params, mesh) == -(-whole // period)
    assert wire_bytes(tx, params, mesh, start=0) == wire_bytes(
        tx, params, mesh, steps=1
    )


def test_what_never_sends_and_what_changes_has_a_mean_too():
    params, mesh = jnp.zeros((30, 20)), relaxjax.emulate(4)
    assert wire_bytes(optax.adam(1e-3), params, mesh) == 0
    late = relaxjax.power_sgd("data", start_after=3, min_compression=0)
    assert wire_bytes(late, params, mesh) == wire_bytes(late, params, mesh, start=3)


def test_what_a_scan_carries_is_not_known_from_its_first_turn():
    """The third of four turns sends; which one it is, is data: the most is counted."""

    def update(updates, state, params=None):
        def turn(count, _):
            sent = jax.lax.cond(
                count == 2, lambda: jax.lax.psum(updates, "data"), lambda: updates
            )
            return count + 1, sent

        _, sums = jax.lax.scan(turn, jnp.int32(0), length=4)
        return sums[0], state

    tx = optax.GradientTransformation(lambda params: (), update)
    once = relaxjax.wire_bytes(relaxjax.all_reduce("data"), jnp.zeros(6), emulate(2))
    assert relaxjax.wire_bytes(tx, jnp.zeros(6), emulate(2), steps=1) == 4 * once

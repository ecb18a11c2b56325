"""compiled_wire_bytes: the compiled program sends what the traced one says."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import accumulate, all_reduce, compiled_wire_bytes, wire_bytes
from relaxjax.gradients.mean._exact_mean import ALGORITHMS
from tests import helpers
from tests.helpers import mesh_of

PARAMS, SGD = helpers.problem(), optax.sgd(0.1)
WORKERS = [2, 3, 4, 8]
ONE_AXIS = ["psum", *(name for name in ALGORITHMS if name != "hierarchical")]


def shapes(n: int, tree: Any, dtype: Any = np.float32):
    """Stacked shapes for n workers."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((n, *x.shape), dtype), tree)


def update_of(tx: Any, n: int):
    """`tx.update` from the first state, as a jitted function of stacked updates."""

    def update(grads):
        grads = jax.tree.map(lambda g: g[0], grads)
        out = tx.update(grads, tx.init(grads), grads)
        return jax.tree.map(lambda x: jnp.asarray(x)[None], out)

    spec = P("data")
    return jax.jit(
        jax.shard_map(
            update, mesh=mesh_of(n), in_specs=spec, out_specs=spec, check_vma=False
        )
    )


def both(tx: Any, tree: Any, n: int, dtype: Any = np.float32) -> tuple[int, int]:
    """Compiled and traced bytes."""
    one = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, dtype), tree)
    compiled = compiled_wire_bytes(update_of(tx, n), shapes(n, tree, dtype))
    return compiled, wire_bytes(tx, one, mesh_of(n))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("bucket_bytes", "n"),
    [
        pytest.param(nbytes, n, marks=[] if usual else [pytest.mark.slow])
        for nbytes, n, usual in [
            *((100, n, n in (2, 3)) for n in WORKERS),
            *((10**6, n, n in (4, 8)) for n in WORKERS),
        ]
    ],
)
@pytest.mark.parametrize("algorithm", ONE_AXIS)
def test_all_reduce(algorithm, bucket_bytes, n):
    tx: Any = all_reduce("data", algorithm=algorithm, bucket_bytes=bucket_bytes)
    compiled, traced = both(tx, PARAMS, n)
    assert compiled == traced > 0


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn])
@pytest.mark.parametrize("algorithm", ONE_AXIS[1:])
def test_narrow_floats_travel_as_bits(algorithm, dtype):
    tx: Any = all_reduce("data", algorithm=algorithm)
    compiled, traced = both(tx, PARAMS, 4, dtype)
    assert compiled == traced > 0


@pytest.mark.few(2)
@pytest.mark.parametrize("n", WORKERS)
def test_adasum(n):
    compiled, traced = both(all_reduce("data", op="adasum"), PARAMS, n)
    assert compiled == traced > 0


def test_this_backend_widens_16_bits_in_psum():
    compiled, traced = both(all_reduce("data"), PARAMS, 4, jnp.bfloat16)
    assert compiled == 2 * traced


def moves(x):
    """Every collective at once on bits; four workers."""
    to_right = [(0, 1), (1, 0), (2, 2), (3, 3)]
    return (
        lax.ppermute(x, "data", to_right),
        lax.all_gather(x, "data"),
        lax.all_to_all(x, "data", 0, 0, tiled=True),
        lax.psum_scatter(x, "data", tiled=True),
        lax.psum(x, "data"),
        lax.pmax(x, "data"),
    )


def own(update) -> Any:
    """A transformation without state."""

    def update_fn(updates, state, params=None):
        del params
        return update(updates, state), state

    return optax.GradientTransformation(lambda params: (), update_fn)


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int8, np.uint16, np.uint32, np.int32, np.float32]
)
def test_every_collective(dtype):
    compiled, traced = both(own(lambda u, _: moves(u)), np.zeros((8, 5)), 4, dtype)
    assert compiled == traced > 0


def chunked(u, _):
    def turn(carry, x):
        right = lax.ppermute(carry, "data", [(i, (i + 1) % 4) for i in range(4)])
        return lax.psum(right * x, "data"), lax.all_gather(x, "data").sum(0)

    return lax.scan(turn, u[0], u)


def twice(u, _):
    """A loop in a loop."""
    return lax.fori_loop(
        0,
        3,
        lambda _, c: lax.fori_loop(0, 2, lambda _, c: lax.psum(c, "data") / 8, c),
        u,
    )


def branched(u, _):
    """Three branches on data."""
    return lax.switch(
        u[0, 0].astype(jnp.int32),
        [
            lambda u: lax.psum(u, "data"),
            lambda u: lax.all_gather(u, "data").sum(0),
            lambda u: -u,
        ],
        u,
    )


PROGRAMS = {"scan": chunked, "loop in a loop": twice, "branches": branched}


@pytest.mark.parametrize("update", PROGRAMS.values(), ids=PROGRAMS)
def test_control_flow(update):
    compiled, traced = both(own(update), np.zeros((7, 5)), 4)
    assert compiled == traced > 0


def test_accumulate_counts_as_the_step_that_sends():
    tx: Any = accumulate(optax.chain(all_reduce("data"), optax.adam(1e-3)), every=3)
    compiled = compiled_wire_bytes(*train_step(tx, 4))
    assert compiled == wire_bytes(tx, PARAMS, mesh_of(4), start=2) > 0
    assert wire_bytes(tx, PARAMS, mesh_of(4), start=0) == 0


def train_step(tx: Any, n: int, mesh: Any = None):
    """A step without metrics, and its arguments, the batch as a shape."""
    mesh = mesh_of(n) if mesh is None else mesh
    params, opt_state = relaxjax.init(tx, PARAMS, mesh)
    (batch,) = helpers.batches(1, 2 * n)
    step = relaxjax.data_parallel(helpers.train_step_of(tx), mesh)
    return step, params, opt_state, jax.eval_shape(lambda: batch)


@pytest.mark.few(2)
@pytest.mark.parametrize("n", WORKERS)
@pytest.mark.parametrize("algorithm", ["psum", "ring"])
def test_a_whole_train_step(algorithm, n):
    tx: Any = optax.chain(all_reduce("data", algorithm=algorithm), optax.adam(1e-3))
    step, *args = train_step(tx, n)
    assert compiled_wire_bytes(step, *args) == wire_bytes(tx, PARAMS, mesh_of(n))


def test_each_phase_is_counted_by_itself():
    """As a call runs it; and of shapes, in which no count is known, the first."""
    tx: Any = optax.chain(relaxjax.power_sgd("data", rank=1, start_after=1), SGD)
    step, *args, batch = train_step(tx, 4)
    warm, low = (wire_bytes(tx, PARAMS, mesh_of(4), start=i) for i in range(2))
    assert compiled_wire_bytes(step, *args, batch) == warm > low
    (data,) = helpers.batches(1, 8)
    *args, _ = step(*args, data)
    assert compiled_wire_bytes(step, *args, batch) == low
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), args)
    assert compiled_wire_bytes(step, *shapes, batch) == warm


def test_shapes_are_as_good_as_arrays():
    tx: Any = optax.chain(all_reduce("data"), optax.adam(1e-3))
    step, *args = train_step(tx, 4)
    (batch,) = helpers.batches(1, 8)
    expected = compiled_wire_bytes(step, *args[:2], batch)
    bare = [
        jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), a) for a in args
    ]
    assert compiled_wire_bytes(step, *bare) == expected > 0


@pytest.mark.long
def test_two_axes():
    mesh = jax.sharding.Mesh(np.reshape(jax.devices()[:6], (2, 3)), ("host", "device"))
    for algorithm in (*ONE_AXIS, "hierarchical"):
        tx: Any = all_reduce(("host", "device"), algorithm=algorithm)
        step, *args = train_step(optax.chain(tx, optax.sgd(0.1)), 6, mesh)
        assert compiled_wire_bytes(step, *args) == wire_bytes(tx, PARAMS, mesh)


def test_what_the_compiler_inserts_is_counted():
    mesh = mesh_of(4)
    w = jax.ShapeDtypeStruct((10,), np.float32, sharding=NamedSharding(mesh, P()))
    x = jax.ShapeDtypeStruct(
        (8, 10), np.float32, sharding=NamedSharding(mesh, P("data"))
    )
    grad = jax.jit(
        jax.grad(lambda w, x: jnp.sum((x * w) ** 2)), out_shardings=w.sharding
    )
    assert compiled_wire_bytes(grad, w, x) == 72


def test_one_device_sends_nothing():
    assert compiled_wire_bytes(jax.jit(lambda x: x @ x), jnp.ones((4, 4))) == 0
    step, *args = train_step(optax.chain(all_reduce("data"), optax.sgd(0.1)), 1)
    assert compiled_wire_bytes(step, *args) == 0


def test_emulated_workers():
    tx = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1))
    step, *args = train_step(tx, 4, relaxjax.emulate(4))
    with pytest.raises(
        ValueError, match=r"emulated on one device by jax.vmap.*wire_by"
    ):
        compiled_wire_bytes(step, *args)


def test_what_is_not_jitted():
    with pytest.raises(
        TypeError, match=r"cannot be lowered: pass what relaxjax.data_p"
    ):
        compiled_wire_bytes(lambda x: x, 1)


def test_a_loop_of_unknown_length():
    update = own(
        lambda u, _: lax.while_loop(
            lambda c: c[0] < 1, lambda c: c + lax.psum(c, "data"), u
        )
    )
    with pytest.raises(ValueError, match="whose number of turns the compiler does not"):
        compiled_wire_bytes(update_of(update, 2), shapes(2, np.zeros(3)))

"""Each error names the argument, its value, the rule and the remedy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import activations, compression
from tests.activations.cases import AXIS
from tests.helpers import mesh_of

AXES: Any = (AXIS,)
NO_CODE: Any = "e4m3"
E4M3 = compression.mx("e4m3")
TREES: Any = {"a": np.zeros(4, np.float32)}, [1.0, 2.0]
RANDOM = compression.quantize(4, stochastic_rounding=True)


def run(fn, x=None):
    x = jnp.ones((2, 4, 8)) if x is None else x
    return jax.vmap(fn, axis_name=AXIS)(x)


@pytest.mark.parametrize(
    ("fn", "error", "message"),
    [
        (
            lambda x: activations.all_reduce(x, AXES, forward=E4M3),
            TypeError,
            "all_reduce: axis_name=.* must be one axis, a string; over several axes",
        ),
        (
            lambda x: activations.all_gather(x, AXIS, forward=NO_CODE),
            TypeError,
            "all_gather: forward='e4m3' is not a Compressor; make one with",
        ),
        (
            lambda x: activations.copy(
                x, AXIS, backward=compression.error_feedback(compression.sign())
            ),
            ValueError,
            "copy: backward=sign with error_feedback: .* give the bare compressor",
        ),
        (
            lambda x: activations.send(x, AXIS, [(0, 1)], forward=RANDOM),
            ValueError,
            "send: quantize4_stochastic is random and key=None; pass key=",
        ),
        (
            lambda x: activations.send(x, AXIS, [(0, 1), (1, 1)]),
            ValueError,
            r"send: perm=\[\(0, 1\), \(1, 1\)\] must have each target once, from 0",
        ),
        (
            lambda x: activations.send(x, AXIS, [(0, 2)]),
            ValueError,
            "each target once, from 0 to 1",
        ),
        (
            lambda x: activations.all_gather(x.astype(int), AXIS, forward=E4M3),
            ValueError,
            "all_gather: x is int32, and codes are of real floats: cast it",
        ),
        (
            lambda x: activations.reduce_scatter(x[:3], AXIS, tiled=True, forward=E4M3),
            ValueError,
            r"dimension 0 of x \(3, 8\) must be a multiple of 2, .* and is 3: pad it",
        ),
        (
            lambda x: activations.all_to_all(x, AXIS, 0, 0, forward=E4M3),
            ValueError,
            r"all_to_all: dimension 0 of x \(4, 8\) must be 2, .* or pass tiled=True",
        ),
        (
            lambda x: activations.reduce_scatter(x, AXIS, scatter_dimension=2),
            ValueError,
            r"reduce_scatter: x has the shape \(4, 8\), and no dimension 2",
        ),
        (
            lambda x: activations.all_gather(x, AXIS, axis=3, forward=E4M3),
            ValueError,
            r"all_gather: x has the shape \(4, 8\), and no dimension 3 of 3 in the",
        ),
        (
            lambda x: activations.all_gather(x, AXIS, axis=-4),
            ValueError,
            "no dimension -4 of 3 in the result",
        ),
        (
            lambda x: activations.all_gather(x[0, 0], AXIS, tiled=True, forward=E4M3),
            ValueError,
            r"all_gather: x has the shape \(\), and no dimension 0",
        ),
        (
            lambda x: activations.all_to_all(x[:2], AXIS, 0, 2),
            ValueError,
            r"all_to_all: x has the shape \(2, 8\), and no dimension 2",
        ),
        (
            lambda x: activations.all_to_all(x[:2], AXIS, 0, -3, forward=E4M3),
            ValueError,
            "no dimension -3",
        ),
        (
            lambda x: activations.all_reduce(TREES[0], AXIS),
            TypeError,
            "all_reduce: x is a dict, and a message is of one array: call it for each",
        ),
        (
            lambda x: activations.send(TREES[1], AXIS, [], forward=E4M3),
            TypeError,
            "send: x is a list",
        ),
        (
            lambda x: activations.all_reduce(x, "modle", forward=E4M3),
            NameError,
            "all_reduce: no axis named 'modle' here",
        ),
    ],
)
def test_bad_input_is_refused(fn, error, message):
    with pytest.raises(error, match=message):
        run(fn)


def test_an_axis_that_data_parallel_does_not_map_is_named():
    """`data_parallel` maps the workers' axis alone."""
    mesh = jax.make_mesh((2, 2), ("data", AXIS))

    def step(x, batch):
        return activations.copy(x, AXIS, backward=E4M3), {}

    mapped = relaxjax.data_parallel(step, mesh, axis_name="data")
    state = relaxjax.to_workers(np.ones((2, 8), np.float32), mesh, axis_name="data")
    with pytest.raises(NameError, match="only 'data': give copy such a name"):
        mapped(state, np.ones(2, np.float32))


def test_a_key_that_differs_is_refused_where_types_tell():
    def fn(x):
        key = jax.random.fold_in(jax.random.key(0), jax.lax.axis_index(AXIS))
        return activations.all_gather(x, AXIS, forward=RANDOM, key=key)

    mapped = jax.jit(
        jax.shard_map(fn, mesh=mesh_of(2, AXIS), in_specs=P(AXIS), out_specs=P(AXIS))
    )
    with pytest.raises(ValueError, match="key= differs over 'model', and a receiver"):
        mapped(jnp.ones((2, 8)))


def test_other_collectives_have_no_bytes():
    with pytest.raises(ValueError, match="collective='psum' must be one of"):
        activations.sent_bytes("psum", jnp.ones(3), 2)

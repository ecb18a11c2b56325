"""Choices by a condition: what runs, what comes out, and what its type says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import varying
from relaxjax._core._cond import cond, select_tree, switch
from tests.helpers import mesh_of


def double(x, y):
    return 2 * x + y


def keep(x, y):
    return x - y


def test_a_bool_is_decided_at_once_and_an_array_when_it_runs():
    assert cond(True, double, keep, 3, 1) == 7
    assert cond(False, double, lambda x, y: y, 3, 1) == 1
    one = np.float32(1)
    run = jax.jit(lambda yes, x: cond(yes, double, keep, x, one))
    assert [run(yes, np.float32(3)) for yes in (True, False)] == [7, 2]


def test_one_of_several():
    choices = [double, keep, lambda x, y: y]
    one = np.float32(1)
    run = jax.jit(lambda i, x: switch(i, choices, x, one))
    assert [run(i, np.float32(3)) for i in range(3)] == [7, 2, 1]


@pytest.mark.parametrize("choose", [cond, None], ids=["cond", "switch"])
@pytest.mark.parametrize("mean_first", [True, False])
def test_what_varies_in_one_result_varies_in_both(choose, mean_first):
    def mean(x):
        return lax.pmean(x, "data")

    acts = [mean, lambda x: x][:: 1 if mean_first else -1]
    seen = []

    def body(x, number):
        y = cond(number > 0, *acts, x) if choose else switch(number, acts, x)
        seen.append(varying(y))
        return y

    mapped = jax.shard_map(
        body, mesh=mesh_of(2), in_specs=(P("data"), P()), out_specs=P("data")
    )
    jax.eval_shape(jax.jit(mapped), jnp.ones(2), jnp.int32(0))
    assert seen == [{"data"}]


def test_a_tree_is_selected_as_a_whole():
    now = {"a": jnp.ones((2, 3)), "n": jnp.int32(1), "key": jax.random.key(1)}
    before = {"a": jnp.zeros((2, 3)), "n": jnp.int32(0), "key": jax.random.key(0)}
    for yes, expected in ((True, now), (False, before)):
        out = select_tree(jnp.asarray(yes), now, before)
        assert out["n"] == expected["n"]
        assert (out["a"] == expected["a"]).all()
        assert out["key"] == expected["key"]

"""The servers of an axis alone: slices, pulls and pushes, against plain numpy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax._core._axis import varying
from relaxjax._core._merge_rules import Leaf
from relaxjax.ps._parameter_server import _at_other_servers
from relaxjax.ps._servers import Servers, servers_of
from tests.helpers import assert_equal, mesh_of

N, D = 8, 9
PLACES = ("vmap", "mesh", "typed")


def mapped(each: Any, place: str) -> Any:
    """`each` on every worker, of stacked arguments."""
    if place == "vmap":
        return jax.jit(jax.vmap(each, axis_name="data"))

    def local(*xs):
        return jax.tree.map(lambda y: y[None], each(*(x[0] for x in xs)))

    spec, typed = P("data"), place == "typed"
    f = jax.shard_map(
        local, mesh=mesh_of(N), in_specs=spec, out_specs=spec, check_vma=typed
    )
    return jax.jit(f)


def slices(x: np.ndarray, k: int) -> np.ndarray:
    """[k, c], the last filled with zeros."""
    c = -(-x.size // k)
    rows = np.zeros(k * c, x.dtype)
    rows[: x.size] = x.ravel()
    return rows.reshape(k, c)


def drawn(k: int, dtype: Any = np.float32) -> np.ndarray:
    """Rows of all workers, [workers, k, c]."""
    rows = np.random.default_rng(k).normal(size=(N, k, -(-D // k)))
    return rows.astype(dtype)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("k", [1, 2, 8])
def test_slices_pulls_and_pushes(k, place):
    def each(x, rows, narrow):
        at = servers_of("test", "data", k, k)
        pulled = at.pull(at.own(x))
        if place == "typed":  # all groups are known to have the same
            assert "data" not in varying(pulled)
        pushed = at.push(rows), at.push(rows / N, divided=True), at.push(narrow)
        return at.rows(x), at.own(x), pulled, *pushed

    x = np.arange(1.0, D + 1, dtype=np.float32).reshape(3, 3)
    rows, narrow = drawn(k), drawn(k, jnp.bfloat16)
    found = mapped(each, place)(np.stack([x] * N), rows, narrow)
    served = [i % k for i in range(N)]
    assert_equal(found[0], [slices(x, k)] * N)
    assert_equal(found[1], slices(x, k)[served])
    assert_equal(found[2], [slices(x, k)] * N)
    mean = rows.astype(np.float64).mean(axis=0)[served]
    np.testing.assert_allclose(found[3], mean, atol=1e-6)
    np.testing.assert_allclose(found[4], mean, atol=1e-6)
    mean = narrow.astype(np.float32).mean(axis=0)[served]
    assert found[5].dtype == jnp.bfloat16
    assert_equal(found[5], mean.astype(jnp.bfloat16))
    for pushed in found[3:]:  # to the bit, where workers are the same server
        assert_equal(pushed, np.asarray(pushed)[served])


def test_servers_on_the_last_axis_are_the_same_on_the_others():
    rows = np.stack([drawn(2), 3 * drawn(2)])

    def each(rows):
        at = servers_of("test", ("host", "device"), 2, 2)
        assert at == Servers("device", ("host",), N, 2)
        return at.push(rows), at.push(rows, divided=True)

    inside = jax.vmap(each, axis_name="device")
    mean, total = jax.jit(jax.vmap(inside, axis_name="host"))(rows)
    expected = rows.astype(np.float64).mean(axis=(0, 1))[[0, 1] * 4]
    np.testing.assert_allclose(mean, [expected] * 2, atol=1e-6)
    np.testing.assert_allclose(total, [16 * expected] * 2, atol=1e-5)


@pytest.mark.parametrize("k", [1, 2, 8])
def test_what_each_sends_by_hand(k):
    """(k - 1) c for a pull; and 2 (m - 1) ceil(c / m) more, in float32, for a push."""
    c, of_sums = {1: (9, 14 * 2), 2: (5, 6 * 2), 8: (2, 0)}[k]
    own = jax.ShapeDtypeStruct((N, c), jnp.bfloat16)
    rows = jax.ShapeDtypeStruct((N, k, c), jnp.bfloat16)
    at = Servers("data", (), N, k)
    pull, push = mapped(at.pull, "mesh"), mapped(at.push, "mesh")
    assert relaxjax.compiled_wire_bytes(pull, own) == (k - 1) * c * 2
    assert relaxjax.compiled_wire_bytes(push, rows) == (k - 1) * c * 2 + of_sums * 4


def test_every_worker_is_a_server_unless_told():
    def number(x):
        at = servers_of("test", "data", None, None)
        assert at == Servers("data", (), N, N)
        return x

    jax.eval_shape(jax.vmap(number, axis_name="data"), jnp.zeros(N))
    three = jax.vmap(lambda x: servers_of("test", "data", 3, 9), axis_name="data")
    with pytest.raises(ValueError, match="test: servers=3 must divide the 8 workers"):
        jax.eval_shape(three, jnp.zeros(N))
    with pytest.raises(NameError, match="test: no axis named 'host'"):
        servers_of("test", ("host", "data"), None, None)


def test_a_checkpoint_s_slices_are_cut_for_other_servers():
    """Of one worker for two, and back."""
    alone = {"servers": np.array([1]), "mu": np.arange(1.0, 6)[None]}
    two = {"servers": np.array([2, 2]), "mu": np.array([[1.0, 2, 3], [4, 5, 0]])}
    for saved, made in ((alone, two), (two, alone)):
        leaf = Leaf("mu", "mu", saved.__getitem__, made.__getitem__, None)
        assert_equal(_at_other_servers(leaf, saved["mu"]), made["mu"])

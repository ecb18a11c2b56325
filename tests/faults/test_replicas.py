"""replica_difference: which leaf of which worker is not what it should be, by bits."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import emulate, replica_difference, require_replicas
from relaxjax._core._tree import leaf_names
from relaxjax.faults._replicas import _digest, _everywhere, _jitted, _together
from tests import helpers
from tests.helpers import mesh_of

N = 4
NAN, OTHER_NAN = (np.uint32(0x7FC00000 + k).view(np.float32) for k in (0, 1))


def tree() -> dict[str, Any]:
    """A leaf of every kind, as each worker should hold it."""
    rng = np.random.default_rng(0)
    return {
        "a": {"w": rng.normal(size=(5, 3)).astype(np.float32)},
        "b": rng.normal(size=7).astype(jnp.bfloat16),
        "c": rng.normal(size=(2, 2)).astype(np.complex64),
        "d": rng.normal(size=6).astype(jnp.float8_e4m3fn),
        "e": rng.integers(-9, 9, 5).astype(np.int8),
        "f": np.array([True, False]),
        "g": np.array([1.0, 0.0, NAN], np.float32),
        "h": np.zeros((0, 3), np.float32),
        "i": np.int32(7),
        "j": rng.normal(size=4).astype(np.float16),
    }


def stacked(place: Any, changes: dict[tuple[str, int], Any] | None = None) -> Any:
    """The tree on the workers, with some leaves of some workers changed."""
    leaves, structure = jax.tree.flatten(tree())
    names = [name.rpartition("/")[2] for name in leaf_names(tree())]
    copies = [np.stack([x] * N) for x in leaves]
    for (name, worker), value in (changes or {}).items():
        copies[names.index(name)][worker] = value
    mesh = place(N)
    if not isinstance(mesh, Mesh):
        return structure.unflatten(map(jnp.asarray, copies))
    sharding = NamedSharding(mesh, P("data"))
    return structure.unflatten(jax.device_put(x, sharding) for x in copies)


places = pytest.mark.parametrize("place", [mesh_of, emulate], ids=["mesh", "emulated"])


@pytest.mark.few(2)
@places
def test_equal_workers_do_not_differ(place):
    assert replica_difference(stacked(place)) is None
    require_replicas(stacked(place))


def one_bit(x: Any, place: Any) -> np.ndarray:
    """The array with the lowest bit of one element flipped."""
    changed = np.array(x)
    changed.view(f"u{changed.dtype.itemsize}")[place] ^= 1
    return changed


@places
@pytest.mark.parametrize(
    ("name", "worker"), [("w", 1), ("b", 2), ("d", 3), ("e", 1), ("j", 3)]
)
def test_one_bit_of_one_element_is_seen(name, worker, place):
    leaf = tree()["a"]["w"] if name == "w" else tree()[name]
    at = (4, 1) if name == "w" else (3,)
    found = replica_difference(stacked(place, {(name, worker): one_bit(leaf, at)}))
    assert found is not None
    assert found.leaf == ("a/w" if name == "w" else name)
    assert (found.worker, found.elements, found.size) == (worker, 1, leaf.size)
    apart = np.float32(leaf[at]) - np.float32(one_bit(leaf, at)[at])
    assert found.largest == abs(apart) > 0


@places
@pytest.mark.parametrize(
    ("name", "value", "largest"),
    [
        ("g", [1.0, -0.0, NAN], 0.0),
        ("g", [1.0, 0.0, OTHER_NAN], np.nan),
        ("g", [1.0, 0.0, 3.0], np.nan),
        ("f", [True, True], 1.0),
        ("i", 9, 2.0),
    ],
)
def test_bits_count_and_not_values(name, value, largest, place):
    value = np.asarray(value, tree()[name].dtype)
    found = replica_difference(stacked(place, {(name, 2): value}))
    assert found is not None
    assert (found.leaf, found.worker, found.elements) == (name, 2, 1)
    np.testing.assert_equal(found.largest, largest)


def test_imaginary_parts_count():
    value = tree()["c"] + np.complex64(0.5j) * np.array([[0, 1], [0, 0]])
    found = replica_difference(stacked(mesh_of, {("c", 1): value}))
    assert found is not None
    assert (found.elements, found.size) == (1, 4)
    assert found.largest == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize("apart", [1e-12, 1e-60, 1e300])
def test_doubles_differ_by_a_double(apart):
    low = 1.0 if apart == 1e-12 else apart
    with jax.enable_x64(True):
        found = replica_difference(jnp.array([low, low + apart], jnp.float64))
    assert found is not None
    assert found.largest == (low + apart) - low > 0


def test_the_first_leaf_and_the_first_worker_are_named():
    changes = {("i", 1): 0, ("b", 3): 0, ("b", 2): tree()["b"][::-1]}
    found = replica_difference(stacked(mesh_of, changes))
    assert found is not None
    assert (found.leaf, found.worker) == ("b", 2)


def test_signs_of_two_elements_and_a_swap_are_seen():
    """A plain sum of bits would miss these."""
    x = np.ones((N, 4), np.float32)
    x[:, 1] = 2
    for change in ([-1, -2, 1, 1], [2, 1, 1, 1], [1, 1, 2, 1]):
        y = x.copy()
        y[3] = change
        assert replica_difference(jnp.asarray(y)) is not None


def test_keys():
    """The keys of `to_workers` differ on purpose, unless same=True."""
    key = jax.random.key(0)
    for place in (mesh_of, emulate):
        same = relaxjax.to_workers({"key": key}, place(N), same=True)
        assert replica_difference(same) is None
        found = replica_difference(relaxjax.to_workers({"key": key}, place(N)))
        assert found is not None
        assert (found.leaf, found.worker, found.elements) == ("key", 1, 1)
        assert np.isnan(found.largest)


def test_leaves_that_are_sharded_over_other_axes_stay_so():
    mesh = Mesh(np.asarray(jax.devices()[:4]).reshape(2, 2), ("data", "model"))
    x = np.stack([np.arange(12.0, dtype=np.float32).reshape(3, 4)] * 2)
    sharding = NamedSharding(mesh, P("data", None, "model"))
    assert replica_difference(jax.device_put(x, sharding)) is None
    x[1, 2, 3] += 1
    found = replica_difference(jax.device_put(x, sharding))
    assert found is not None
    assert (found.worker, found.elements, found.largest) == (1, 1, 1.0)


def test_nothing_but_digests_is_sent():
    params = {"w": jnp.zeros((64, 64)), "b": jnp.zeros(64)}
    stacked = relaxjax.to_workers(params, mesh_of(N))
    leaves = jax.tree.leaves(stacked)
    for leaf in leaves:
        text = helpers.optimized_hlo(_digest.lower(leaf, None))
        assert not any(kind in text for kind in ("all-gather", "all-reduce", "permute"))
    words = [_digest(leaf, None) for leaf in leaves]
    lowered = _jitted(_together, _everywhere(leaves)).lower(words)
    text = helpers.optimized_hlo(lowered)
    moved = [
        line for line in text.splitlines() if re.search("all-(gather|reduce)", line)
    ]
    assert moved
    assert not any("64" in line.partition("=")[2].partition("(")[0] for line in moved)


def test_leaves_of_one_form_are_one_program():
    compiled: Any = _digest
    before = compiled._cache_size()
    require_replicas({str(k): jnp.zeros((N, 7, 11)) for k in range(20)})
    assert compiled._cache_size() - before <= 1


def test_the_error_says_what_and_where():
    x = jnp.ones((3, 5)).at[2, 4].add(0.5)
    with pytest.raises(relaxjax.ReplicaError, match="the same params: leaf 'w'") as hit:
        require_replicas({"w": x}, "params")
    assert hit.value.difference == ("w", 2, 1, 5, 0.5, 0)


def test_small_cases():
    assert replica_difference({}) is None
    assert replica_difference(jnp.ones((1, 3))) is None
    assert replica_difference(np.ones((2, 3))) is None
    with pytest.raises(ValueError, match="leaf 'w' has no worker axis"):
        replica_difference({"w": jnp.float32(1)})


@pytest.mark.parametrize(
    ("rows", "dtype", "largest"),
    [
        ([2**24, 2**24 + 1], "int32", 1),
        ([0, 3], "int8", 3),
        ([-3, 2], "int4", 5),
        ([1, 2], "float4_e2m1fn", 1),
        ([1, 2], "float8_e4m3fn", 1),
    ],
)
def test_narrow_floats_and_large_integers(rows, dtype, largest):
    x = jnp.asarray([[row] for row in rows]).astype(dtype)
    found = replica_difference({"x": x})
    assert found
    assert found.largest == relaxjax.spread({"x": x}) == largest
    assert replica_difference({"x": x[:1]}) is None

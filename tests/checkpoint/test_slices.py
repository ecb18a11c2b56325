"""States of 2 islands of 2 slices on other meshes: the mean of the islands stays."""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, fsdp
from relaxjax.checkpoint import EQUAL, Checkpoints, _checkpoints, resized
from tests import helpers

PARAMS = {
    "w": np.arange(12.0, dtype=np.float32).reshape(3, 4),
    "layers": np.arange(10.0, dtype=np.float32).reshape(2, 5),
    "scalar": np.float32(3),
}
OTHERS = [(1, 4), (4, 1), (3, 2), (2, 4), (1, 2)]
CODE = compression.quantize(4)


def diloco(**how: Any) -> Any:
    return relaxjax.diloco(optax.adam(0.1), "island", sync_every=2, **how)


def made(tx: Any, islands: int, slices: int) -> tuple[Any, Any]:
    """A mesh, and the first state on it."""
    mesh = emulate({"island": islands, "data": slices})
    return mesh, fsdp.init(tx, PARAMS, mesh, over="data", layers=["layers"])


def apart(state: Any) -> Any:
    """The second island's floats are 2 more than the first's."""
    more = jnp.array([0.0, 0.0, 2.0, 2.0])

    def moved(x: jax.Array) -> jax.Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return x + more.reshape(4, *[1] * (x.ndim - 1))

    return jax.tree.map(moved, state)


def is_shard(x: Any) -> bool:
    return isinstance(x, fsdp.Shard)


def wholes(tree: Any) -> list[np.ndarray]:
    """The mean over islands of every array that lies in slices."""
    leaves = [x for x in jax.tree.leaves(tree, is_leaf=is_shard) if is_shard(x)]
    return [np.asarray(x.joined()) for x in leaves if isinstance(x.value, jax.Array)]


def assert_wholes(tree: Any, other: Any) -> None:
    for x, y in zip(wholes(tree), wholes(other), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)


@pytest.mark.long
@pytest.mark.few(5)
@pytest.mark.parametrize("to", OTHERS, ids=str)
def test_the_mean_of_islands_is_laid_out_again(to):
    """Params, moments and anchors; of all islands, not of the first."""
    before, (_, like) = apart(made(diloco(), 2, 2)[1]), made(diloco(), *to)
    after, report = resized(before, like)
    assert_wholes(after, before)
    helpers.assert_close(fsdp.whole(after[0]), jax.tree.map(lambda x: x + 1, PARAMS), 0)
    assert relaxjax.spread(after[0]) == 0
    assert len(wholes(after)) >= 3 * 4
    assert report.rules["0/w/value"] == "shard"


@pytest.mark.long
def test_copies_of_islands_are_their_models():
    """The rule of CHOCO's copies is about models: all know what all have."""

    def tx(topology: Any) -> Any:
        return optax.chain(
            optax.sgd(0.1), relaxjax.gossip("island", topology, compressor=CODE)
        )

    one, two = (tx(relaxjax.topology.ring(n)) for n in (2, 3))
    before = apart(made(one, 2, 2)[1])
    (shards, state), _ = resized(before, made(two, 3, 2)[1])
    helpers.assert_close(fsdp.whole(shards), jax.tree.map(lambda x: x + 1, PARAMS), 0)
    for copy in state[1].kept.known:
        assert_wholes(copy, before[1][1].kept.known[0])


def test_what_waits_for_other_islands_is_told_in_full():
    """(1 - 1 / n) d is still to come, n being the islands and not the workers."""

    def tx() -> Any:
        return relaxjax.eager_diloco(optax.sgd(0.1), "island", sync_every=2)

    before = apart(made(tx(), 2, 2)[1])
    after, _ = resized(before, made(tx(), 4, 2)[1])
    two, four = (x[1][1].kept.waiting for x in (before, after))
    for x, y in zip(wholes(two), wholes(four), strict=True):
        np.testing.assert_allclose((1 - 1 / 2) * x, (1 - 1 / 4) * y, rtol=1e-6)


@pytest.mark.parametrize("op", ["mean", "sum"])
def test_what_codes_of_slices_owe_stays(op):
    """In the mean of the islands, or in their sum, element by element."""
    code = compression.error_feedback(CODE)

    def tx() -> Any:
        reducer = relaxjax.all_reduce("island", compressor=code, op=op)
        return optax.chain(reducer, optax.sgd(0.1))

    def owed(state: Any, slices: int) -> np.ndarray:
        leaves = jax.tree.leaves_with_path(state)
        rows = next(
            np.asarray(x)
            for path, x in leaves
            if "residual" in jax.tree_util.keystr(path) and "'w'" in str(path)
        )
        copies = rows.reshape(-1, slices, rows.shape[-1]).reshape(-1, 12)
        return copies.sum(0) if op == "sum" else copies.mean(0)

    _, (shards, state) = made(tx(), 2, 2)
    state = jax.tree.map(
        lambda x: jnp.arange(x.size, dtype=x.dtype).reshape(x.shape), state
    )
    (_, after), report = resized((shards, state), made(tx(), 3, 4)[1])
    np.testing.assert_allclose(owed(after, 4), owed(state, 2), rtol=1e-6)
    assert {"sum": "sum", "mean": "shard"}[op] in report.rules.values()


def test_codes_of_residuals_are_merged_as_what_they_say():
    """LoCo keeps eight bits of a slice, and a scale for each: they cannot be joined."""

    def tx() -> Any:
        code = compression.loco(CODE)
        reducer = relaxjax.all_reduce("island", compressor=code)
        return optax.chain(reducer, optax.sgd(0.1))

    def owed(state: Any, slices: int) -> np.ndarray:
        leaves = jax.tree.leaves_with_path(state)
        codes, scale = (
            next(x for p, x in leaves if name in str(p) and "'w'" in str(p))
            for name in ("codes", "largest")
        )
        rows = np.asarray(codes) * np.asarray(scale)[:, None] / 127
        return rows.reshape(-1, slices, rows.shape[-1]).reshape(-1, 12).mean(0)

    _, (shards, state) = made(tx(), 2, 2)
    state = jax.tree.map(
        lambda x: (
            x
            if x.dtype == jnp.int32
            else jnp.arange(1, x.size + 1, dtype=x.dtype).reshape(x.shape)
        ),
        state,
    )
    (_, after), _ = resized((shards, state), made(tx(), 1, 4)[1])
    found, expected = owed(after, 4), owed(state, 2)
    assert expected.max() > 0.3
    np.testing.assert_allclose(found, expected, atol=expected.max() / 254)


class Common(NamedTuple):
    model: Annotated[Any, EQUAL]


def test_what_all_islands_share_must_be_equal_whole():
    """The slices inside an island differ by right."""
    _, (shards, _) = made(diloco(), 2, 2)
    like = Common(made(diloco(), 1, 4)[1][0])
    after, report = resized(Common(shards), like)
    helpers.assert_equal(fsdp.whole(after.model), PARAMS)
    assert set(report.rules.values()) == {"equal"}
    with pytest.raises(ValueError, match="'model/layers/value' should be the same"):
        resized(Common(apart(shards)), like)


@pytest.mark.long
def test_each_slice_keeps_factors_of_its_own():
    """Those of low rank across islands: equal in all copies of a slice alone."""
    tx = optax.chain(relaxjax.power_sgd("island", rank=1), optax.sgd(0.1))
    params = {"w": np.zeros((8, 6), np.float32)}

    def begun(islands: int, slices: int) -> Any:
        mesh = emulate({"island": islands, "data": slices})
        return mesh, fsdp.init(tx, params, mesh, over="data")

    def step(shards, state, batch):
        grads = jax.tree.map(lambda x: jax.random.normal(batch[0], x.shape), shards)
        updates, state = tx.update(grads, state, shards)
        return optax.apply_updates(shards, updates), state, {}

    mesh, state = begun(2, 2)
    keys = jax.random.split(jax.random.key(0), 4)
    *state, _ = relaxjax.data_parallel(step, mesh)(*state, keys)
    after, report = resized(tuple(state), begun(3, 2)[1])
    before, found = (x[1][0].right["w"].value for x in (state, after))
    assert np.abs(before[0] - before[1]).max() > 0.01
    np.testing.assert_array_equal(found, np.tile(before[:2], (3, 1, 1, 1)))
    assert "equal" in report.rules.values()
    with pytest.raises(ValueError, match="right/w/value"):
        resized(tuple(state), begun(2, 4)[1])


def test_another_model_in_slices_is_refused():
    mesh = emulate({"island": 2, "data": 2})
    tx = diloco()
    before = fsdp.init(tx, {"w": jnp.zeros((3, 4))}, mesh, over="data")
    other = fsdp.init(tx, {"w": jnp.zeros((4, 4))}, mesh, over="data")
    with pytest.raises(ValueError, match=r"array of \[3, 4\] .* one of \[4, 4\]"):
        resized(before, other)


def saved_and_restored(folder, before: Any, mesh: Any, after: Any, other: Any) -> Any:
    with Checkpoints(folder, mesh) as checkpoints:
        checkpoints.save(1, before)
    with Checkpoints(folder, other) as checkpoints:
        step, state = checkpoints.restore(after)
        assert step == 1
        return state, checkpoints.report


@pytest.mark.parametrize("to", [(1, 4), (4, 1), (2, 2)], ids=str)
def test_a_checkpoint_on_another_mesh_of_as_many_workers(to, tmp_path):
    mesh, state = made(diloco(), 2, 2)
    before, (other, like) = apart(state), made(diloco(), *to)
    after, report = saved_and_restored(tmp_path, before, mesh, like, other)
    assert_wholes(after, before)
    if to == (2, 2):
        assert report is None
        helpers.assert_equal(after, before)
    else:
        assert f"4 workers became 4 ({mesh.shape} -> {other.shape}):" in str(report)


def test_islands_of_whole_models_become_one_island(tmp_path):
    """Rows of two islands would be workers of one island that are apart."""
    tx, params = diloco(), jnp.ones(3)
    meshes = [emulate({"island": n, "data": 4 // n}) for n in (2, 1)]
    before, like = (relaxjax.init(tx, params, mesh) for mesh in meshes)
    before = apart(before)
    after, _ = saved_and_restored(tmp_path, before, meshes[0], like, meshes[1])
    np.testing.assert_array_equal(after[0], np.full((4, 3), 2.0))


@pytest.mark.parametrize(
    ("sizes", "other", "alike"),
    [
        ({"data": 4}, {"host": 1, "device": 4}, True),
        ({"a": 2, "b": 2}, {"c": 2, "d": 2}, True),
        ({"a": 2, "b": 2}, {"b": 2, "a": 2}, False),
        ({"data": 4}, {"host": 2, "device": 2}, False),
    ],
)
def test_rows_that_are_of_the_same_workers_stay(sizes, other, alike, tmp_path):
    state = jnp.arange(4.0).reshape(4, 1)
    meshes = emulate(sizes), emulate(other)
    after, report = saved_and_restored(tmp_path, state, meshes[0], state, meshes[1])
    expected = np.arange(4.0) if alike else np.full(4, 1.5)
    np.testing.assert_array_equal(np.ravel(after), expected)
    assert (report is None) == alike


def test_what_cannot_merge_names_both_meshes(tmp_path):
    meshes = [emulate({"island": n, "data": 4 // n}) for n in (2, 1)]
    state = relaxjax.to_workers({"count": jnp.int32(0)}, meshes[0])
    state["count"] = jnp.arange(4)
    with pytest.raises(
        ValueError, match=r"mesh \{'island': 2, 'data': 2\}, .*'data': 4"
    ):
        saved_and_restored(tmp_path, state, meshes[0], state, meshes[1])


@pytest.mark.parametrize("to", [(1, 4), (3, 2)], ids=str)
def test_a_checkpoint_that_does_not_say_how_it_was_cut(to, tmp_path, monkeypatch):
    """As older versions wrote them: the most slices that fit the rows."""
    monkeypatch.setattr(_checkpoints, "slices_of", lambda state: None)
    mesh, state = made(diloco(), 2, 2)
    other, like = made(diloco(), *to)
    after, _ = saved_and_restored(tmp_path, apart(state), mesh, like, other)
    assert_wholes(after, apart(state))
    helpers.assert_close(fsdp.whole(after[0]), jax.tree.map(lambda x: x + 1, PARAMS), 0)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize(
    "feedback", [compression.error_feedback, compression.loco], ids=["ef14", "loco"]
)
def test_what_gradients_of_shards_owe_stays(feedback, workers):
    """Of layers too, each of which has codes of its own; a gradient carries floats."""
    exact = feedback is compression.error_feedback

    def begun(n: int) -> Any:
        mesh = emulate(n)
        shards, _ = fsdp.init(optax.sgd(0.1), PARAMS, mesh, layers=["layers"])
        sent = fsdp.gathered(lambda p: p, "data", gradients=feedback(CODE))
        state = {name: fsdp.init_state(sent, x, mesh) for name, x in shards.items()}
        return shards, state

    def owed(state: Any) -> list[np.ndarray]:
        def is_debt(x: Any) -> bool:
            return hasattr(x, "codes") or hasattr(x, "residual")

        def of(x: Any) -> np.ndarray:
            if exact:
                return np.mean(x.residual, axis=0)
            ones = [1] * (x.codes.ndim - x.largest.ndim)
            scale = np.reshape(x.largest, (*x.largest.shape, *ones)) / 127
            return np.mean(np.asarray(x.codes, np.float32) * scale, axis=0)

        return [of(x) for x in jax.tree.leaves(state, is_leaf=is_debt) if is_debt(x)]

    def filled(path: Any, x: Any) -> Any:
        if path[-1].name not in ("codes", "largest", "residual"):
            return x
        return jnp.asarray(rng.integers(1, 99, x.shape), x.dtype)

    (shards, state), rng = begun(4), np.random.default_rng(0)
    state = jax.tree.map_with_path(filled, state)
    (_, after), _ = resized((shards, state), begun(workers))
    before, after = owed(state), owed(after)
    assert len(before) == len(PARAMS)
    for x, y in zip(before, after, strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-6 if exact else 0, atol=0.5)

"""Params alone from a checkpoint: what `consensus` gives, for every relaxation."""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate, fsdp
from relaxjax.checkpoint import Checkpoints, _params, restore_params
from relaxjax.checkpoint._folder import steps_in
from tests import helpers
from tests.checkpoint import training

MESH = emulate(4)


def nested(tree):
    return jax.tree.map(np.asarray, tree)


@pytest.mark.parametrize("name", ["all_reduce", "gossip+sign", "parameter_server"])
def test_they_are_the_consensus(name, tmp_path, monkeypatch):
    tx = training.relaxed(name, 4)
    params, opt_state = training.trained(
        tx, training.fresh(tx, MESH), MESH, helpers.batches(2, 8)
    )
    with Checkpoints(tmp_path, MESH) as saves:
        saves.save(1, {"params": training.fresh(tx, MESH)[0], "opt_state": opt_state})
        saves.save(2, {"params": params, "opt_state": opt_state})
    files = sorted(tmp_path.rglob("*"))
    found = restore_params(tmp_path)
    expected = nested(relaxjax.consensus(params))
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    first = restore_params(tmp_path, step=np.int64(1), like=helpers.problem())
    jax.tree.map(np.testing.assert_array_equal, first, helpers.problem())
    assert sorted(tmp_path.rglob("*")) == files


def test_slices_are_joined(tmp_path):
    params = {
        "w": np.arange(15, dtype=np.float32).reshape(3, 5),
        "blocks": np.arange(24, dtype=np.float32).reshape(4, 2, 3),
        "scale": np.float32(2),
    }
    mesh = emulate({"island": 2, "data": 2})
    tx = relaxjax.diloco(optax.sgd(0.1), "island", 2)
    shards, state = fsdp.init(tx, params, mesh, over="data", layers=["blocks"])
    moved = jax.tree.map(
        lambda x: x * jnp.asarray([1.0, 1, 3, 3]).reshape(4, *[1] * (x.ndim - 1)),
        shards,
    )
    scales = jax.tree.map(lambda _: jnp.arange(4.0), shards)  # one of each slice
    with Checkpoints(tmp_path, mesh) as saves:
        saves.save(5, (moved, state, scales))
    assert restore_params(tmp_path, part="2") == dict.fromkeys(params, 1.5)
    found = restore_params(tmp_path, part="0")
    jax.tree.map(np.testing.assert_array_equal, found, nested(fsdp.whole(moved)))
    jax.tree.map(
        np.testing.assert_allclose, found, {k: 2 * x for k, x in params.items()}
    )


def test_what_is_removed_before_it_is_open_is_passed_over(tmp_path, monkeypatch):
    with Checkpoints(tmp_path, emulate(2), keep=1) as run:
        run.save(1, {"params": jnp.ones(2)})
        run.wait()

        def listed(folder: Any) -> list[int]:
            steps = steps_in(folder)
            if steps == [1]:
                run.save(2, {"params": 2 * jnp.ones(2)})
                run.wait()
            return steps

        monkeypatch.setattr(_params, "steps_in", listed)
        assert restore_params(tmp_path) == 2


class Layer(NamedTuple):
    """Its fields are not in the order of the alphabet, as the keys of dicts are."""

    w: Any
    b: Any


def test_arrays_go_by_their_names_into_another_tree(tmp_path):
    with Checkpoints(tmp_path, emulate(2)) as saves:
        saves.save(1, {"params": Layer(jnp.full((2, 3), 1.0), jnp.full((2, 3), 2.0))})
    like = {"b": jnp.zeros(3), "w": jnp.zeros(3)}
    found = restore_params(tmp_path, like=like)
    assert (found["w"][0], found["b"][0]) == (1, 2)


def test_trees_and_dtypes(tmp_path):
    params = [
        {"w": jnp.ones((2, 3), jnp.bfloat16), "n": jnp.asarray([3, 3])},
        jnp.zeros((2, 0)),
    ]
    with Checkpoints(tmp_path, emulate(2)) as saves:
        saves.save(1, {"params": params, "bare": jnp.asarray([1.0, 2.0])})
    found = restore_params(tmp_path)
    assert found["0"]["w"].dtype == jnp.bfloat16
    assert found["0"]["n"] == 3
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), params)
    again = restore_params(tmp_path, like=like)
    assert jax.tree.structure(again) == jax.tree.structure(params)
    assert restore_params(tmp_path, part="bare") == 1.5
    with pytest.raises(ValueError, match=r"no arrays in part='param'.*'params'"):
        restore_params(tmp_path, part="param")
    with pytest.raises(ValueError, match=r"'0/n' is int.* absent in `like`"):
        restore_params(tmp_path, like=[{"v": np.ones(3)}, np.ones(0)])
    with pytest.raises(ValueError, match=r"'2' is absent in the checkpoint and float"):
        restore_params(tmp_path, like=[*like, np.ones(3)])
    for other in (np.ones((2, 3)), np.ones(2)):  # rows of workers; another width
        wrong = [{**like[0], "w": other.astype(jnp.bfloat16)}, like[1]]
        with pytest.raises(ValueError, match=r"'0/w' is bfloat16\[3\] in the check"):
            restore_params(tmp_path, like=wrong)
    with pytest.raises(TypeError, match=r"restore_params: step=1\.0 must be a whole"):
        restore_params(tmp_path, step=cast("Any", 1.0))
    with pytest.raises(ValueError, match=r"no checkpoint of step 2 .*only of \[1\]"):
        restore_params(tmp_path, step=2)
    with pytest.raises(ValueError, match=r"no checkpoint in .*only of no step"):
        restore_params(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_names_that_hold_each_other_need_like(tmp_path):
    params = {"enc": jnp.ones((2, 3)), "enc/scale": jnp.ones((2, 2))}
    with Checkpoints(tmp_path, emulate(2)) as saves:
        saves.save(1, {"params": params})
    with pytest.raises(ValueError, match=r"'enc/scale' lies in an array .*give like="):
        restore_params(tmp_path)
    like = jax.tree.map(lambda x: x[0], params)
    assert set(restore_params(tmp_path, like=like)) == {"enc", "enc/scale"}


def test_a_number_among_the_params_is_one_in_like(tmp_path):
    """`init` takes it, as an array of JAX's own dtype."""
    params = {"scale": 1.5, "count": 3, "w": np.ones(3, np.float32)}
    mesh = emulate(2)
    with Checkpoints(tmp_path, mesh) as saves:
        saves.save(1, {"params": relaxjax.to_workers(params, mesh)})
    found = restore_params(tmp_path, like=params)
    assert jax.tree.map(float, {k: found[k] for k in ("scale", "count")}) == {
        "scale": 1.5,
        "count": 3.0,
    }
    assert (found["scale"].dtype, found["count"].dtype) == (np.float32, np.int32)
    with pytest.raises(ValueError, match="'scale' is float32"):
        restore_params(tmp_path, like={**params, "scale": 2})

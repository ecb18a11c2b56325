"""Beside model parallelism: a transformer, a pipeline and islands, compiled."""

import runpy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import all_reduce, wire_bytes
from tests import helpers
from tests.compiled_text import collectives
from tests.helpers import assert_close

EXAMPLES = Path(__file__).parents[2] / "examples"


def mesh_of(outer: int, inner: int, names: tuple[str, str]) -> Mesh:
    devices = np.asarray(jax.devices()[: outer * inner])
    return Mesh(devices.reshape(outer, inner), names)


def put(tree: Any, specs: Any, mesh: Mesh) -> Any:
    return jax.tree.map(
        lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec)), tree, specs
    )


def kinds_by_axis(hlo: str, inner: int) -> dict[str, set[str]]:
    """Kinds of collectives inside groups of `inner` neighbors, and across them."""
    found: dict[str, set[str]] = {"inside": set(), "across": set()}
    for kind, groups in collectives(hlo):
        across = any(len({d // inner for d in group}) > 1 for group in groups)
        found["across" if across else "inside"].add(kind)
        if across:  # the same place in each group
            assert all(len({d % inner for d in group}) == 1 for group in groups)
    return found


@pytest.mark.slow
def test_the_transformer_of_the_example_learns_and_gathers_nothing():
    example = runpy.run_path(str(EXAMPLES / "tensor_parallel.py"))
    losses, (step, *args) = example["main"](30)
    assert losses[-1] < 0.75 * losses[0]
    assert relaxjax.spread(args[0]) == 0.0
    found = kinds_by_axis(helpers.optimized_hlo(step.lower(*args)), 2)
    # Over "data" our ring; over "model" the sums in the layers of the model.
    assert found == {"across": {"collective-permute"}, "inside": {"all-reduce"}}


@pytest.mark.slow
def test_the_transformer_of_the_example_learns_in_eight_bits():
    example = runpy.run_path(str(EXAMPLES / "tensor_parallel.py"))
    losses, (_, params, *_) = example["main"](30, "8 bits")
    assert losses[-1] < 0.75 * losses[0]
    assert relaxjax.spread(params) == 0.0


STAGES, WIDTH = 4, 8


def through_stages(weights, x):
    """Each stage holds its own weight; activations go from stage to stage."""
    ring = [(i, (i + 1) % STAGES) for i in range(STAGES)]

    def stage(w, x):
        for _ in range(STAGES):
            x = lax.ppermute(jnp.tanh(x @ w[0]), "stage", ring)
        first = lax.axis_index("stage") == 0  # there every stage has had its turn
        return lax.psum(jnp.where(first, jnp.mean(x**2), 0.0), "stage")

    return jax.shard_map(
        stage,
        in_specs=(P("stage"), P()),
        out_specs=P(),
        axis_names={"stage"},
        check_vma=False,
    )(weights, x)


def one_after_another(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", ["psum", "ring", "two_shot"])
def test_a_pipeline_reduces_each_stage_by_itself(algorithm):
    mesh = mesh_of(2, STAGES, ("data", "stage"))
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(STAGES, WIDTH, WIDTH)).astype(np.float32) / 2
    x = rng.normal(size=(6, WIDTH)).astype(np.float32)
    reducer: Any = all_reduce("data", algorithm=algorithm, specs=P("stage"))
    tx = optax.chain(reducer, optax.sgd(0.5))
    params, state = relaxjax.init(
        tx, put(weights, P("stage"), mesh), mesh, axis_name="data"
    )
    step = relaxjax.data_parallel(
        helpers.step_of(jax.grad(through_stages), tx), mesh, axis_name="data"
    )
    found = kinds_by_axis(helpers.optimized_hlo(step.lower(params, state, x)), STAGES)
    ours = {"psum": "all-reduce", "ring": "collective-permute"}
    assert found["across"] <= {ours.get(algorithm, "all-to-all"), "all-gather"}
    assert found["inside"] <= {"collective-permute", "all-reduce"}
    alone = jnp.asarray(weights)
    for _ in range(3):
        params, state, _ = step(params, state, x)
        alone = alone - 0.5 * jax.grad(one_after_another)(alone, x)
    assert_close(params[0], alone, 1e-5)
    shard = WIDTH * WIDTH * 4  # one stage's weight, in two halves for two workers
    assert wire_bytes(reducer, weights, mesh, axis_name="data") == shard


@pytest.mark.few(2)
@pytest.mark.parametrize("donate", [False, True])
@pytest.mark.parametrize("algorithm", ["psum", "ring"])
def test_an_island_takes_no_more_memory_than_plain_sharding(algorithm, donate):
    """Bytes per device as the compiler says: arguments, results and temporaries."""
    mesh = mesh_of(2, 4, ("replica", "fsdp"))
    names = [f"layer{i}" for i in range(4)]
    specs = dict.fromkeys(names, P("fsdp"))
    params = put(dict.fromkeys(names, np.ones((256, 256), np.float32)), specs, mesh)
    both = NamedSharding(mesh, P(("replica", "fsdp")))
    batch = jax.device_put(np.ones((64, 256), np.float32), both)

    def loss_fn(params, x):
        for name in names:
            x = jnp.tanh(x @ params[name])
        return jnp.mean(x**2)

    def memory(jitted: Any, *args: Any) -> int:
        found = jitted.lower(*args).compile().memory_analysis()
        used = found.argument_size_in_bytes + found.output_size_in_bytes
        return used + found.temp_size_in_bytes - found.alias_size_in_bytes

    optimizer = optax.adam(0.1)
    donated = (0, 1) if donate else ()
    plain = memory(
        jax.jit(helpers.step_of(jax.grad(loss_fn), optimizer), donate_argnums=donated),
        params,
        optimizer.init(params),
        batch,
    )
    tx: Any = optax.chain(
        all_reduce("replica", algorithm=algorithm, specs=specs), optimizer
    )
    state = relaxjax.init(tx, params, mesh, axis_name="replica")
    step = relaxjax.data_parallel(
        helpers.step_of(jax.grad(loss_fn), tx), mesh, axis_name="replica", donate=donate
    )
    assert 0 < memory(step, *state, batch) <= plain

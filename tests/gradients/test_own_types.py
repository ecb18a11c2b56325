"""In one's own mapping over two axes, types say what varies along which of them.

A copy along "model" stays one, whatever travels before it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import all_reduce, compression, merges
from tests import sharded

SPECS = {"a": P(None, "model"), "b": P(), "c": P("model"), "d": P()}
SHAPES = {"a": (6, 8), "b": (5,), "c": (4,), "d": (3, 2)}
CODE = compression.error_feedback(compression.quantize(8))
EXACT = ("psum", "ring", "two_shot", "halving_doubling", "tree")
REDUCERS = {
    **{name: all_reduce("data", algorithm=name, specs=SPECS) for name in EXACT},
    "small buckets": all_reduce("data", algorithm="ring", specs=SPECS, bucket_bytes=8),
    "codes": all_reduce("data", compressor=CODE, specs=SPECS),
    "sparse": all_reduce("data", compressor=compression.top_k(0.5), specs=SPECS),
    "median": all_reduce("data", op=merges.median(), specs=SPECS),
    "clipped": all_reduce("data", op=merges.clipped(), specs=SPECS),
    "power_sgd": relaxjax.power_sgd("data", rank=1, specs=SPECS),
    "diloco": relaxjax.diloco(optax.sgd(0.1), "data", 1, specs=SPECS),
}


@pytest.mark.few(12)
@pytest.mark.parametrize("name", REDUCERS)
def test_a_copy_stays_a_copy(name):
    tx: Any = REDUCERS[name]

    def update(g: Any) -> Any:
        g = relaxjax.to_local(g, "data")
        return jax.tree.map(lambda x: x[None], tx.update(g, tx.init(g), g)[0])

    rng = np.random.default_rng(0)
    g = {k: jnp.asarray(rng.normal(size=s), jnp.float32) for k, s in SHAPES.items()}
    outs = {k: P("data", *spec) for k, spec in SPECS.items()}
    mesh = sharded.mesh_of(2, 2)
    typed, untyped = (
        jax.shard_map(update, mesh=mesh, in_specs=(SPECS,), out_specs=outs, check_vma=x)
        for x in (True, False)
    )
    found, expected = jax.jit(typed)(g), jax.jit(untyped)(g)
    for key, x in expected.items():
        np.testing.assert_allclose(found[key], x, atol=1e-6)

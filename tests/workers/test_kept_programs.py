"""JAX's persistent cache knows a program again in the next process.

A name that differs between processes, such as an address or the order of a set, would
compile every step anew, and nobody would be told.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np, optax, relaxjax
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
adam, graph = optax.adam(1e-3), relaxjax.topology.ring(2)
methods = [
    optax.chain(relaxjax.power_sgd("data", rank=1, bits=8), adam),
    relaxjax.diloco(adam, "data", 2),
    optax.chain(adam, relaxjax.gossip("data", graph)),
]
params = {"w": jnp.zeros((6, 5)), "b": jnp.zeros(7)}
for tx in methods:
    for mesh in (relaxjax.emulate(2), jax.make_mesh((2,), ("data",))):
        def train_step(params, state, batch):
            gradient = jax.tree.map(lambda x: 0 * x + batch.mean(), params)
            updates, state = tx.update(gradient, state, params)
            return optax.apply_updates(params, updates), state, {}
        now, state = relaxjax.init(tx, params, mesh)
        step = relaxjax.data_parallel(train_step, mesh)
        jax.block_until_ready(step(now, state, np.ones((4, 2), np.float32)))
"""


@pytest.mark.long
def test_another_process_compiles_nothing_anew(tmp_path: Path):
    kept = []
    for seed in ("1", "2"):
        flags = "--xla_force_host_platform_device_count=2"
        env = {**os.environ, "PYTHONHASHSEED": seed, "XLA_FLAGS": flags}
        command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
        subprocess.run(command, env=env, check=True, timeout=300)
        kept.append({path.name for path in tmp_path.glob("*-cache")})
    assert len(kept[0]) > 6
    assert kept[1] == kept[0]

"""The same tokens without kills: `decoupled_diloco`, emulated, everybody present."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import relaxjax
from benchmarks.islands import data, digits
from benchmarks.islands.setting import Setting
from relaxjax.local_updates import deal
from relaxjax.local_updates.common._fragments import join


def calm(setting: Setting, steps: int, overlap: int, seed: int, folder: Any) -> Any:
    """The common model after so many steps of each island.

    Args:
      setting: the islands.
      steps: steps of each.
      overlap: steps from an offer to taking the merge over.
      seed: of the batches.
      folder: where the digits are.
    """
    train, _ = data.read(folder)
    n, p = setting.islands, setting.fragments
    tx = relaxjax.decoupled_diloco(
        optax.sgd(setting.rate),
        "islands",
        sync_every=setting.sync_every,
        fragments=p,
        overlap=overlap,
        outer=setting.outer(),
    )
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(train.labels), size=(n, steps, setting.rows))
    keys = jax.random.split(jax.random.key(seed), (n, steps))
    start = data.params_of(setting.seed, setting.width)
    step = functools.partial(digits.train_step, tx=tx)

    def one(carry: Any, drawn: Any) -> Any:
        (params, opt_state), (rows, key) = carry, drawn
        batch = data.Rows(*(jnp.asarray(x)[rows] for x in train))
        noise = data.NOISE * jax.random.normal(key, batch.images.shape)
        batch = batch._replace(images=batch.images + noise)
        params, opt_state, _ = step(params, opt_state, batch)
        return (params, opt_state), None

    def island(drawn: Any) -> Any:
        params = jax.tree.map(jnp.asarray, start)
        (_, opt_state), _ = lax.scan(one, (params, tx.init(params)), drawn)
        return [memory.anchor for memory in optax.tree.get(opt_state, "kept")]

    run = jax.jit(jax.vmap(island, axis_name="islands"))
    anchors = jax.tree.map(lambda x: np.asarray(x[0]), run((drawn, keys)))
    return join(deal("calm", p, None, start), anchors)

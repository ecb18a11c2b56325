"""Each algorithm's page has its line, which runs, and says when and when not."""

import tomllib

import algorithm_pages
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression

STEMS = sorted(map(algorithm_pages.stem_of, algorithm_pages.algorithms()))
WHEN = tomllib.loads(algorithm_pages.WHEN.read_text())
NAMES = {"optax": optax, "relaxjax": relaxjax, "jnp": jnp, "compression": compression}


def test_every_algorithm_says_when():
    assert sorted(WHEN) == STEMS
    for stem, each in WHEN.items():
        assert set(each) - {"tx", "call"} == {"take", "not", "page"}, stem
        assert ("tx" in each) != ("call" in each), stem
        for said in (each["take"], each["not"]):
            assert said.endswith("."), stem
            assert len(said.split()) < 25, stem


@pytest.mark.few(8)
@pytest.mark.parametrize("stem", STEMS)
def test_the_line_of_a_page_runs(stem):
    names = NAMES | {"optimizer": optax.adam(1e-3)}
    if line := WHEN[stem].get("call"):
        called = jax.vmap(
            lambda x, w: eval(line, names | {"x": x, "w": w}), axis_name="data"
        )
        shapes = jnp.ones((8, 16, 32)), jnp.ones((8, 32, 4))
        assert jax.eval_shape(called, *shapes) is not None
        return
    line = WHEN[stem]["tx"]
    workers = 4 if "0, 0, 0, 3" in line else 8
    sizes = {"host": workers // 2, "device": 2}
    if "topology.ring(4)" in line or '"host"' not in line:
        sizes = {"host": 4, "device": 2} if '"host"' in line else {"data": workers}
    mesh, tx = relaxjax.emulate(sizes), eval(line, names)
    params = {"w": np.ones((32, 16), np.float32), "b": np.ones(16, np.float32)}
    if stem in ("dion", "dion2"):
        del params["b"]

    def train_step(params, opt_state, batch):
        grads = jax.tree.map(lambda p: p * batch.mean(), params)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {}

    params, opt_state = relaxjax.init(tx, params, mesh)
    step = relaxjax.data_parallel(train_step, mesh)
    assert step.lower(params, opt_state, jnp.ones((16, 32))) is not None

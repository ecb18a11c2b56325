"""The unit of the loss is nobody's business: gradients times 2^k, to the bit.

A power of two is exact in every float, so that an absolute epsilon, a sum of squares
that leaves float32's range, or a bound in the params' unit shows. From params of zero,
the models are 2^k times as large; of rules that normalize
matrices, those are as they were.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import merges
from relaxjax._core._relaxation import Training
from relaxjax._names import RELAXATIONS, parse
from relaxjax.compression._rows import COMPRESSORS, FEEDBACKS
from tests.helpers import assert_equal

WORKERS, STEPS = 4, 9
SCALES = (20, -20, 80, -80)
NORMALIZE = {"demo": "mnw", "dion": "mn", "dion2": "mn"}  # these leaves
SQUARED = {"decoupled_diloco"}  # lengths of outer gradients, whose squares are floats
ABSOLUTE = {
    "one_bit_adam": "Adam's epsilon",
    "one_bit_lamb": "Adam's epsilon",
    "zero_one_adam": "Adam's epsilon",
    "lossy_push_sum": "its resolution",
    "moniqua": "its bound on what lies between neighbors",
    "all_reduce+fp16": "the range of float16",
    "all_reduce+threshold": "its threshold",
}
NAMES = [
    *RELAXATIONS,
    *(f"all_reduce+{compressor}" for compressor in COMPRESSORS),
    *(f"all_reduce+sign+{feedback}@two_shot" for feedback in FEEDBACKS),
    "local_sgd+quantize4+ef14",
    "diloco+quantize4",
    "gossip+sign@hypercube",
    "deep_squeeze+sign",
    "parameter_server+sign+ef14",
]


@functools.cache
def gradients() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    shapes = {"m": (16, 12), "n": (12, 8), "w": (33,)}
    return [
        {
            k: rng.normal(size=(WORKERS, *s)).astype(np.float32)
            for k, s in shapes.items()
        }
        for _ in range(STEPS)
    ]


def models(name: str, scales: Sequence[int]) -> list[Any]:
    """The models after some steps, over 2^k, of gradients times 2^k."""
    tx: Any = parse(name).build("data", Training(optax.sgd(0.5), 0.5, 100, WORKERS))
    update = jax.jit(jax.vmap(tx.update, axis_name="data"))
    found = []
    for k in scales:
        x = jax.tree.map(jnp.zeros_like, gradients()[0])
        state = jax.vmap(tx.init, axis_name="data")(x)
        for g in gradients():
            g = jax.tree.map(lambda a, k=k: a * np.float32(2.0**k), g)
            updates, state = update(g, state, x)
            x = jax.block_until_ready(optax.apply_updates(x, updates))
        found.append(jax.tree.map(np.asarray, x))
    return found


@pytest.mark.few(6)
@pytest.mark.parametrize("name", [x for x in NAMES if x not in ABSOLUTE])
def test_the_unit_of_the_loss_does_not_matter(name):
    scales = [k for k in SCALES if name not in SQUARED or abs(k) < 60]
    plain, *scaled = models(name, [0, *scales])
    for k, x in zip(scales, scaled, strict=True):
        same = NORMALIZE.get(name, "")
        for leaf, a in plain.items():
            assert_equal(x[leaf], a if leaf in same else a * np.float32(2.0**k))


RULES = [
    merges.clipped("leaf"),
    merges.clipped("all"),
    merges.trimmed(1),
    merges.median(),
    merges.geometric_median(),
    merges.nearest(1, merges.median()),
    merges.rda(),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rules_of_merges_know_no_unit(rule):
    """Of lengths whose squares are floats, as relaxjax.merges says."""
    tx: Any = relaxjax.all_reduce("data", op=rule)
    merged = jax.jit(jax.vmap(lambda g: tx.update(g, tx.init(g))[0], axis_name="data"))
    own = {k: x.copy() for k, x in gradients()[0].items()}
    for x in own.values():
        x[2] *= 50  # a worker who is wrong
    plain = merged(own)
    lowest = -55 if rule.name == "geometric_median" else -50
    for k in (20, -20, 45, lowest):
        times = np.float32(2.0**k)
        scaled = merged({name: x * times for name, x in own.items()})
        assert_equal(scaled, {name: x * times for name, x in plain.items()})


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ABSOLUTE)
def test_what_has_a_unit_shows_it(name):
    plain, scaled = models(name, [0, -50])
    times = np.float32(2.0**-50)
    apart = [
        np.abs(x - times * a)
        for x, a in zip(*map(jax.tree.leaves, (scaled, plain)), strict=True)
    ]
    assert max(x.max() for x in apart) > 0

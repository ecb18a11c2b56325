"""What a row sends by its form is what its program sends."""

import jax
import jax.numpy as jnp
import pytest

from relaxjax import plan
from relaxjax._names import RELAXATIONS
from relaxjax.plan import _traced
from relaxjax.plan._traced import can_send, traced_leaf
from relaxjax.plan.forms._row_bytes import FORMS, form_of

WHOLE = 8 * 2**20
LEAVES: list[tuple[tuple[int, ...], int, int]] = [
    ((64, 128), 3, WHOLE),
    ((7, 300), 8, 16800),  # both in one bucket, just so
    ((96, 257), 2, WHOLE),  # 99 kB, which no sum packs with another
    ((3, 3, 12, 20), 5, 4000),
    ((5000,), 7, 39999),  # one byte short of both
    ((33, 4), 8, WHOLE),
    ((), 12, WHOLE),
]
"""A shape, the workers and the bytes of a bucket."""


def leaf_of(*shape: int, dtype: object = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


MODEL = plan.Model(params=[leaf_of(64, 64), leaf_of(100)], compute=1.0)
EIGHT = plan.Network(workers=8)


@pytest.mark.few(84)
@pytest.mark.parametrize("case", LEAVES, ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_what_the_program_sends(name: str, case):
    shape, workers, bucket_bytes = case
    row, leaf = RELAXATIONS[name], leaf_of(*shape)
    bucket_bytes = _traced._least(row, leaf, bucket_bytes)
    form = form_of(name, leaf, workers)
    assert form is not None
    sent, rounds = form(leaf, workers, bucket_bytes)
    assert (sent / 2, rounds) == traced_leaf(row, workers, leaf, bucket_bytes)


def test_every_row_that_is_ranked_by_its_program_has_a_form():
    """The answer of `relaxjax plan` takes no trace of an update."""
    traced = [r for r in RELAXATIONS.values() if r.sends.kind == "traced"]
    ranked = {row.label for row in plan.rank(MODEL, EIGHT, quality="lossy").rows}
    assert {row.name for row in traced} & ranked == set(FORMS)


@pytest.mark.parametrize("name", ["dion", "desynced"])
def test_what_has_no_form_is_traced(name: str, monkeypatch: pytest.MonkeyPatch):
    """Other dtypes, leaves without elements, and a worker alone."""
    row, seen = RELAXATIONS[name], []
    trees = [[leaf_of(8, 6)], [leaf_of(8, 6, dtype=jnp.bfloat16)], [leaf_of(0, 5)]]

    def watched(row, workers, leaf, bucket_bytes):
        seen.append((leaf.dtype, leaf.shape, workers))
        return traced_leaf(row, workers, leaf, bucket_bytes)

    monkeypatch.setattr(_traced, "traced_leaf", watched)
    _traced._of_leaf.cache_clear()
    model = plan.Model(params=[trees, jnp.zeros(1)], compute=1.0)
    assert can_send(row, 3, model)
    assert [shape for _, shape, _ in seen] == [(8, 6), (0, 5)]
    assert can_send(row, 1, plan.Model(params=trees[0], compute=1.0))
    assert seen[-1] == (jnp.float32, (8, 6), 1)
    _traced._of_leaf.cache_clear()


def test_fragments_of_nothing_are_still_refused():
    row = RELAXATIONS["streaming_diloco"]
    model = plan.Model(params=[leaf_of(0, 4), leaf_of(3)], compute=1.0)
    assert not can_send(row, 4, model)

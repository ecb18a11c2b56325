"""local(): an identity whose state names its leaves."""

import jax
import jax.numpy as jnp

import relaxjax
from relaxjax._core._local import LocalState
from relaxjax._core._merge_rules import marks_of
from relaxjax._core._tree import layout_of


def test_updates_pass_and_the_state_names_the_leaves():
    params = {"expert": jnp.ones(2)}
    tx = relaxjax.local()
    state = tx.init(params)
    assert state == LocalState(layout_of(params))
    assert jax.tree.leaves(state) == []
    updates = {"expert": jnp.zeros(2)}
    out, after = tx.update(updates, state, params, anything=1)
    assert out is updates
    assert after is state


def test_it_cannot_be_made_for_new_workers():
    rule = marks_of(LocalState)["layout"]
    assert rule.name == "refuse"
    assert "each worker's own" in rule.reason
    assert rule.merge is rule.rebuilt is None

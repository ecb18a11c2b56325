"""Names by which a profile shows the parts of a relaxation."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from relaxjax import all_reduce, gossip, power_sgd, topology
from relaxjax._core._jaxprs import axis_names_of, programs_of
from relaxjax._core.layouts._sharding import as_on_devices
from relaxjax.compression import error_feedback, quantize

PARAMS = {"w": jnp.ones((8, 8)), "b": jnp.ones(8)}

CODES, RING = error_feedback(quantize(8)), topology.ring(4)
EXACT = {"pack", "send", "unpack"}
ROWS: dict[str, tuple[Any, set[str]]] = {
    "psum": (all_reduce("data"), EXACT),
    "ring": (all_reduce("data", algorithm="ring"), EXACT),
    "codes": (
        all_reduce("data", compressor=CODES, algorithm="two_shot"),
        {*EXACT, "encode", "decode", "feedback"},
    ),
    "gossip": (gossip("data", RING), EXACT),
    "gossip in codes": (
        gossip("data", RING, compressor=quantize(8)),
        {*EXACT, "encode", "decode"},
    ),
    "low rank": (power_sgd("data", rank=2), EXACT),
}


def equations(jaxpr: Any, scope: str = "") -> Iterator[tuple[Any, str]]:
    """All equations, also those of programs inside of others, with their scopes."""
    for eqn in jaxpr.eqns:
        inside = f"{scope}/{eqn.source_info.name_stack}"
        yield eqn, inside
        for program in programs_of(eqn.params):
            yield from equations(program.jaxpr, inside)


@pytest.mark.parametrize(("tx", "parts"), ROWS.values(), ids=ROWS)
def test_parts_are_named_and_what_travels_is_in_send(tx, parts):
    def step(params):
        return tx.update(params, tx.init(params), params)[0]

    with as_on_devices({"data": 4}, ["data"]):
        traced = jax.make_jaxpr(step, axis_env=[("data", 4)])(PARAMS)
    found, sent = set(), 0
    for eqn, scope in equations(traced.jaxpr):
        names = set(scope.replace("(", "/").replace(")", "/").split("/"))
        found |= names & {*EXACT, "encode", "decode", "feedback"}
        if axis_names_of(eqn) and eqn.primitive.name not in ("axis_index", "pvary"):
            assert any(name.startswith("relaxjax.") for name in names)
            assert "send" in names, (eqn.primitive, scope)
            sent += 1
    assert sent
    assert found >= parts

"""Verdicts on the library's own, on claims, and on code that raises."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, emulate, topology
from relaxjax.check import (
    compressor_laws,
    feedback_laws,
    relaxation_laws,
    topology_laws,
)
from relaxjax.check._bytes import bytes_of
from relaxjax.check._quality import place, runs_of
from relaxjax.check._subjects import Subject
from relaxjax.check._token_laws import tokens
from relaxjax.compression import Compressor, Law
from relaxjax.compression._rows import COMPRESSORS, FEEDBACKS
from relaxjax.tasks import TASKS
from relaxjax.topology._rows import TOPOLOGIES
from tests.helpers import mesh_of


def by_name(laws):
    return {law.law.split(",")[0]: law for law in laws}


@pytest.mark.long
def test_a_linear_compressor_adds_and_one_that_lies_does_not():
    true = by_name(compressor_laws(compression.random_k(0.5), draws=100, sizes=(7,)))
    assert true["linear"].holds
    lie = compression.sign()._replace(law=Law(linear=True))
    false = by_name(compressor_laws(lie, draws=100, sizes=(7,)))["linear"]
    assert false.holds is False
    assert false.counterexample is not None


def test_what_raises_is_refuted_with_what_it_said():
    def broken(x, noise):
        raise RuntimeError("no such code\nat all")

    compressor = Compressor("broken", broken, lambda p, d, n: p, Law())
    (only,) = compressor_laws(compressor)
    assert only.holds is False
    assert str(only.counterexample) == (
        "expected a result, seen RuntimeError: no such code"
    )


@pytest.mark.parametrize(
    ("decompress", "found"),
    [
        (lambda p, d, n: jnp.zeros(d + 1), "another shape"),
        (lambda p, d, n: p / 0, "not finite"),
        (lambda p, d, n: p.astype(jnp.bfloat16), "another dtype"),
    ],
)
def test_what_comes_back_is_an_array_like_x(decompress, found):
    compressor = Compressor("odd", lambda x, n: x, decompress, Law())
    assert compressor_laws(compressor, sizes=(7,))[0].found == found


@pytest.mark.long
def test_a_receiver_does_not_know_the_senders_noise():
    def compress(x, noise):
        return x + (noise.own[0] % 7).astype(jnp.float32)

    def decompress(payload, size, noise):
        return payload - (noise.own[0] % 7).astype(jnp.float32)

    compressor = Compressor("peeks", compress, decompress, Law(), random=True)
    laws = by_name(compressor_laws(compressor, draws=100, sizes=(7,)))
    assert laws["decoded from the payload"].holds is False


def batched(one, all_at_once):
    """A function of a row that is another one for many rows."""
    alone = jax.custom_batching.custom_vmap(one)
    alone.def_vmap(lambda size, mapped, x: (all_at_once(x), True))
    return alone


def scaled(x, axis):
    return x / jnp.max(jnp.abs(x), axis=axis, keepdims=True)


BY_NEIGHBORS = batched(lambda x: scaled(x, -1), lambda x: scaled(x, None))


@pytest.mark.parametrize(
    ("compress", "decompress", "found"),
    [
        (lambda x, n: BY_NEIGHBORS(x), lambda p, d, n: p, "depends on its neighbor"),
        (lambda x, n: jnp.nan_to_num(x), lambda p, d, n: p, "a NaN is hidden"),
        (lambda x, n: x, lambda p, d, n: p, ""),
    ],
)
def test_a_code_of_activations_is_of_each_token_alone(compress, decompress, found):
    verdict = tokens(Compressor("odd", compress, decompress, Law()))
    assert verdict.holds is not bool(found)
    assert found in verdict.found
    assert found or verdict.found == "each alone, 480 bytes for (3, 40)"


@pytest.mark.long
def test_a_code_of_activations_is_held_without_its_feedback():
    assert tokens(compression.error_feedback(compression.sign())).holds
    laws = by_name(compressor_laws(compression.sign(), sizes=(7,)))
    assert laws["tokens of activations"].holds


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("wrap", "holds"),
    [
        (compression.error_feedback, True),
        (compression.econtrol, True),
        (compression.ef21, None),
    ],
)
def test_feedbacks_that_claim_to_lose_nothing_do_not(wrap, holds):
    (law,) = feedback_laws(wrap(compression.top_k(0.3)))
    assert law.holds is holds, law


def test_no_feedback_goes_around_what_is_neither():
    (law,) = feedback_laws(Compressor("c", lambda x, n: x, lambda p, d, n: p, Law()))
    assert law.holds is None
    assert "neither" in law.found


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPRESSORS)
def test_no_false_alarm_on_the_librarys_compressors(name):
    laws = (*compressor_laws(COMPRESSORS[name]()), *feedback_laws(COMPRESSORS[name]()))
    assert [law for law in laws if law.holds is False] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_no_false_alarm_on_the_librarys_graphs(name):
    laws = topology_laws(TOPOLOGIES[name])
    assert [law for law in laws if law.holds is False] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FEEDBACKS)
def test_no_false_alarm_on_the_librarys_feedbacks(name):
    (law,) = feedback_laws(FEEDBACKS[name](compression.sign()))
    assert law.holds is not False, law


@pytest.mark.parametrize("name", ["ring", "one_peer_exponential", "star"])
def test_the_librarys_graphs_pass(name):
    laws = topology_laws(getattr(topology, name), counts=(2, 3, 4))
    assert [law for law in laws if law.holds is False] == []


def test_graphs_for_push_sum_claim_less():
    matrix = [[0.5, 0.0, 0.5], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]]
    matrix[0][0], matrix[1][0] = 0.25, 0.75

    def make(n):
        return topology.from_column_stochastic(matrix)

    laws = by_name(topology_laws(make, claims=("columns",), counts=(3,)))
    assert laws["columns sum to 1"].holds
    assert laws["rows sum to 1"].holds is None
    assert laws["rows sum to 1"].counterexample is None
    assert "round 0, row 0: expected 1" in laws["rows sum to 1"].found
    assert laws["gossip is W"].holds is None


def test_numbers_of_workers_may_be_refused_but_not_eight():
    def even(n):
        if n % 2:
            raise ValueError("even numbers only")
        return topology.ring(n)

    assert "refuses 3, 5" in topology_laws(even, counts=(2, 3, 5))[0].found

    def never(n):
        raise ValueError("never")

    (law,) = topology_laws(never, counts=(8,))
    assert law.holds is False
    (law,) = topology_laws(lambda n: topology.ring(3), counts=(4,))
    assert law.found == "another shape"


@pytest.mark.long
def test_what_is_not_claimed_is_reported():
    def make(workers, optimizer):
        return optax.chain(optimizer, relaxjax.local_sgd("data", 2))

    laws = by_name(relaxation_laws(make, claims=()))
    assert "models differ" in laws["the same updates"].found
    assert all(law.holds is None for law in laws.values())
    (row,), verdict = bytes_of(
        Subject("local", "relaxation", make, (), None), mesh_of(4)
    )
    assert verdict.holds
    assert row.traced == row.compiled == 2 * 3 * 1025 * 4


@pytest.mark.long
def test_gossip_keeps_the_mean_and_half_of_it_does_not():
    def make(workers, optimizer):
        mixed = relaxjax.gossip("data", topology.ring(workers))
        return optax.chain(optimizer, mixed)

    laws = by_name(relaxation_laws(make, claims=("mean", "alone")))
    assert laws["nothing is lost"].holds
    assert laws["one worker alone"].holds

    def half(workers, optimizer):
        return optax.chain(make(workers, optimizer), optax.scale(0.5))

    laws = by_name(relaxation_laws(half, claims=("mean",)))
    assert laws["nothing is lost"].holds is False


@pytest.mark.long
def test_a_skipped_and_a_private_nan_are_told_apart():
    def skips(workers, optimizer):
        tx = optax.chain(relaxjax.all_reduce("data"), optimizer)
        return relaxjax.skip_nonfinite(tx, "data")

    assert (
        "all skip it" in by_name(relaxation_laws(skips, claims=()))["not finite"].found
    )

    def alone(workers, optimizer):
        return optimizer

    laws = by_name(relaxation_laws(alone, claims=("mean",)))
    assert "on workers [1]" in laws["not finite"].found
    assert laws["nothing is lost"].holds


@pytest.mark.parametrize("factor", [2, np.nan])
def test_devices_that_differ_from_emulation_are_refuted(factor):
    def make(workers, optimizer):
        def update(updates, state, params: Any = None):
            on_a_mesh = bool(jax.typeof(params["bias"]).sharding.mesh.axis_names)
            times = factor if on_a_mesh else 1
            return jax.tree.map(lambda x: x * times, updates), state

        odd = optax.GradientTransformation(lambda params: (), update)
        return optax.chain(relaxjax.all_reduce("data"), odd, optimizer)

    laws = by_name(relaxation_laws(make, claims=(), mesh=mesh_of(2)))
    assert laws["on devices as emulated"].holds is False


def test_what_does_not_train_is_a_row_with_its_error():
    def make(workers, optimizer):
        raise ValueError("not today")

    subject = Subject("bad", "relaxation", make, (), None)
    task = TASKS["digits"](0)
    *_, (label, owner, build) = runs_of([subject], task, 2)
    row = place(label, owner, build, task, 2)
    assert row == {"label": "bad", "subject": "bad", "error": "ValueError: not today"}


@pytest.mark.long
def test_a_compressor_is_trained_bare_and_with_feedback():
    subject = Subject(
        "s", "compressor", lambda workers, opt: compression.sign(), (), None
    )
    labels = [label for label, owner, _ in runs_of([subject], TASKS["digits"](0), 2)]
    assert labels[-2:] == ["all_reduce+s", "all_reduce+s+ef14"]
    rows, verdict = bytes_of(subject, emulate(4))
    assert verdict.found.endswith("none compiled")
    assert rows[0].stated is None


def test_a_nan_refutes_what_it_is_compared_in():
    """0 / 0 where a worker is alone; a sum of payloads that decodes to NaN."""

    def make(workers, optimizer):
        def update(updates, state, params: Any = None):
            others = 0.0 if workers == 1 else 1.0
            return jax.tree.map(lambda x: x * others / others, updates), state

        odd = optax.GradientTransformation(lambda params: (), update)
        return optax.chain(relaxjax.all_reduce("data"), odd, optimizer)

    laws = by_name(relaxation_laws(make, claims=("alone",)))
    assert laws["one worker alone"].holds is False

    def decompress(payload: Any, size: int, noise: Any) -> Any:
        x, count = payload
        return jnp.where(count == 1, x, jnp.nan)

    counted = compression.Compressor(
        "counted",
        lambda x, noise: (x, jnp.ones((), jnp.int32)),
        decompress,
        Law(linear=True),
    )
    laws = by_name(compressor_laws(counted, draws=1, sizes=(7,)))
    assert laws["linear"].holds is False


@pytest.mark.parametrize("claims", [("Same",), "same", ("rows",)])
def test_claims_of_no_law_are_refused(claims):
    with pytest.raises(ValueError, match="may claim same, mean, alone"):
        relaxation_laws(lambda *_: optax.identity(), claims=claims)
    with pytest.raises(ValueError, match="may claim rows, columns"):
        topology_laws(relaxjax.topology.ring, claims=("Same",))


def test_an_index_of_16_bits_is_too_narrow():
    def narrow(x, noise):
        _, indices = jax.lax.top_k(jnp.abs(x), 1)
        return x[indices], indices.astype(jnp.uint16)

    def decompress(payload, size, noise):
        values, indices = payload
        return jnp.zeros(size).at[indices].set(values, mode="drop")

    compressor = Compressor("narrow", narrow, decompress, Law(delta=lambda d: 1 / d))
    law = by_name(compressor_laws(compressor))["contraction"]
    assert law.holds is False
    assert law.counterexample is not None
    assert law.counterexample.where["size"] == 100_000


def doubled(x, workers):
    """The mean by recursive doubling, right for powers of two."""
    distance = 1
    while distance < workers:
        pairs = [(i, i ^ distance) for i in range(workers) if i ^ distance < workers]
        x = (x + jax.lax.ppermute(x, "data", pairs)) / 2
        distance *= 2
    return x


def by_doubling(refuses):
    def make(workers, optimizer):
        if refuses and workers & (workers - 1):
            raise ValueError("powers of two only")

        def update(updates, state, params: Any = None):
            return jax.tree.map(lambda x: doubled(x, workers), updates), state

        return optax.chain(
            optax.GradientTransformation(lambda params: (), update), optimizer
        )

    return make


@pytest.mark.parametrize(("refuses", "holds"), [(False, False), (True, None)])
def test_three_workers_are_no_power_of_two(refuses, holds):
    laws = by_name(relaxation_laws(by_doubling(refuses), claims=("same", "mean")))
    assert laws["the same updates"].holds
    assert laws["nothing is lost"].holds
    assert laws["three workers"].holds is holds
    assert not refuses or "powers of two only" in laws["three workers"].found

"""What is known of a step of one worker, by small steps that a person can follow."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from relaxjax import all_reduce, emulate, local_sgd, to_workers
from relaxjax.workers import workers_of
from relaxjax.workers._step_arguments import checked
from relaxjax.workers._worker_axis import per_worker
from relaxjax.workers.followed._looked import (
    Looked,
    is_optimizers,
    looked_at,
    parts_like,
    places_like,
)

MESH = emulate(2)
W = {"a": jnp.ones(3), "b": jnp.ones(())}
TX: Any = optax.chain(all_reduce("data"), optax.trace(0.9))
BATCH = np.ones((4, 3), np.float32)
OWN = jnp.arange(3.0)


def look(step: Any, *state: Any, mesh: Any = MESH) -> Looked:
    """The program of a step that is traced, as `data_parallel` traces it."""
    found: list[Looked] = []
    workers = workers_of(mesh, None, "test")
    step = per_worker(looked_at(checked(step), found.append), workers, batch=True)
    step(*to_workers(state, mesh), BATCH)
    (only,) = found
    return only


def gradients(w: Any, x: Any) -> Any:
    return jax.tree.map(lambda p: p * x.sum(), w)


@pytest.mark.parametrize("mesh", [MESH, jax.make_mesh((2,), ("data",))])
def test_the_program_is_that_of_one_worker(mesh):
    def step(w, x):
        return {"a": w["a"] + jax.lax.psum(x, "data")[0], "b": w["b"]}, x.sum()

    found = look(step, W, mesh=mesh)
    assert jax.tree.map(lambda x: x.shape, found.state) == ({"a": (3,), "b": ()},)
    shapes = [var.aval.shape for var in found.program.jaxpr.invars]
    assert shapes == [(3,), (), (2, 3)]
    assert "psum" in str(found.program)


@pytest.mark.parametrize("mesh", [MESH, jax.make_mesh((2,), ("data",))])
def test_what_a_step_is_closed_over_is_no_argument(mesh):
    """Numbers of a trace around it, as of a jitted loop, and of none."""
    found: list[Looked] = []

    def around(rate, shift):
        def step(w, x):
            return {"a": w["a"] + rate * x.sum(0) + shift, "b": w["b"] + rate}, OWN

        found.append(look(step, W, mesh=mesh))
        return rate

    jax.jit(around)(0.5, jnp.ones(3))
    around(jnp.float32(0.5), OWN)
    for each in found:
        ins = each.program.jaxpr.invars
        assert [var.aval.shape for var in ins] == [(3,), (), (2, 3)]
        assert len(each.program.jaxpr.constvars) == len(each.program.consts)
        assert each.places_of(ins) == [0, 1]


@pytest.mark.parametrize("mesh", [MESH, jax.make_mesh((2,), ("data",))])
def test_a_step_that_is_looked_at_is_the_same_step(mesh):
    def step(w, x):
        return (w + jax.lax.psum(x, "data").sum(),), x * w, 1.0

    workers = workers_of(mesh, None, "test")
    traced = []
    looked = per_worker(looked_at(step, traced.append), workers, batch=True)
    w = to_workers(jnp.ones(()), mesh)
    batch = jnp.arange(4.0)
    for out, right in zip(
        jax.tree.leaves(looked(w, batch)),
        jax.tree.leaves(per_worker(step, workers, batch=True)(w, batch)),
        strict=True,
    ):
        np.testing.assert_array_equal(out, right)
        assert jax.typeof(out) == jax.typeof(right)
    looked(w, batch)
    assert len(traced) == 1


def test_params_are_where_they_are_given():
    """Also where another argument before them is like them, or a part of it."""

    def step(old, pair, s, x):
        w, count = pair
        u, s = TX.update(gradients(w, x), s, w)
        return old, (optax.apply_updates(w, u), count), s, ()

    found = look(step, W, (W, jnp.ones(2)), TX.init(W))
    assert found.states == 2 + 3 + 2
    assert found.places == [2, 3]
    assert found.values == []
    (given,) = found.given
    assert given.at == ("all_reduce", "gradients", ("data",), 0)
    assert found.places_of(given.params) == [2, 3]
    numbered = range(len(found.program.jaxpr.outvars))
    assert found.of(numbered, (given.params, given.updates)) == [9, 10, 7, 8]
    assert found.places_of(given.state) == found.places_of(given.updates) == []


def test_params_that_are_not_given_are_the_first_argument_like_the_updates():
    def step(count, w, old, s, x):
        u, s = TX.update(gradients(w, x), s)
        return count, optax.apply_updates(w, u), old, s, ()

    found = look(step, jnp.ones(3), W, W, TX.init(W))
    assert found.places == [1, 2]
    assert [[*part] for part in found.alike] == [[1, 2], [3, 4]]
    other = jax.tree.map(lambda x: x[None], W)
    found = look(step, jnp.ones(3), W, other, TX.init(W))
    assert found.places == [1, 2]

    def unlike(count, old, w, s, x):
        u, s = TX.update(gradients(w, x), s)
        return count, old, optax.apply_updates(w, u), s, ()

    found = look(unlike, jnp.ones(3), other, W, TX.init(W))
    assert found.places == [3, 4]


def test_of_two_relaxations_no_part_is_the_params():
    """Each is given a part of them."""

    def step(s, w, old, x):
        g, (first, second) = gradients(w, x), s
        a, first = TX.update({"a": g["a"]}, first)
        b, second = TX.update({"b": g["b"]}, second)
        return (first, second), optax.apply_updates(w, {**a, **b}), old, ()

    parts = {"a": W["a"]}, {"b": W["b"]}
    found = look(step, tuple(map(TX.init, parts)), W, W)
    assert (found.alike, found.places) == ((), [])

    def halves(s, a, b, x):
        g, (first, second) = gradients({**b, **a}, x), s
        v, second = TX.update({"b": g["b"]}, second)
        u, first = TX.update({"a": g["a"]}, first)
        return (first, second), optax.apply_updates(a, u), optax.apply_updates(b, v), ()

    found = look(halves, tuple(map(TX.init, parts)), *parts)
    assert (found.alike, found.places) == ((), [2, 3])


def test_parts_like_some_updates_stand_outside_of_optimizers():
    state = (jnp.ones(3), TX.init(W), W, {"inside": W})
    assert [*parts_like(state, W)] == [range(3, 5), range(5, 7)]
    assert places_like(state, W) == range(3, 5)
    assert places_like(state, {"c": W}) == range(0)


def test_params_may_be_the_last_argument():
    def step(s, w, x):
        u, s = TX.update(gradients(w, x), s)
        return s, optax.apply_updates(w, u), ()

    found = look(step, TX.init(W), W)
    assert found.places == [2, 3]


def test_values_are_those_of_the_relaxations():
    def step(w, s, x):
        u, s = TX.update(gradients(w, x), s, w, value=x.sum())
        return optax.apply_updates(w, u), s, ()

    found = look(step, W, TX.init(W))
    assert len(found.values) == 1 < len(found.program.jaxpr.outvars) - found.states
    assert found.values[0].aval.shape == ()
    assert found.places == [0, 1]


def test_an_update_without_a_value_beside_one_with_it():
    def step(w, s, x):
        first, rest = all_reduce("data"), all_reduce("data")
        u, _ = first.update(gradients(w, x), first.init(w), w)
        u, _ = rest.update(u, rest.init(w), w, value=x.sum())
        return optax.apply_updates(w, u), s, ()

    found = look(step, W, TX.init(W))
    assert [var.aval.shape for var in found.values] == [()]


def test_leaves_of_other_shapes_are_not_the_updates():
    """One leaf of two is alike, or all are, and there is one more."""
    half = {"a": jnp.ones(3), "b": jnp.ones(2)}
    more = {**W, "c": jnp.ones(())}

    def step(half, more, none, w, s, x):
        u, s = TX.update(gradients(w, x), s)
        return half, more, none, optax.apply_updates(w, u), s, ()

    found = look(step, half, more, (), W, TX.init(W))
    assert found.places == [5, 6]

    def lonely(half, x):
        TX.update(gradients(W, x), TX.init(W))
        return half, ()

    found = look(lonely, half)
    assert found.places == []


def test_a_jitted_step_keeps_its_values():
    @jax.jit
    def step(w, s, x):
        u, s = TX.update(gradients(w, x), s, w, value=x.sum())
        return optax.apply_updates(w, u), s, ()

    found = look(step, W, TX.init(W))
    assert found.places == [0, 1]
    known = {*found.program.jaxpr.invars, *found.program.jaxpr.eqns[0].outvars}
    assert known.isdisjoint(found.values)


def test_a_step_that_trains_nothing_has_no_params():
    found = look(lambda w, x: (w, x.sum()), W)
    assert (found.values, found.places) == ([], [])


class Mine(NamedTuple):
    x: Any


def test_optimizers_states_are_named_tuples_of_optax_or_of_ours():
    assert is_optimizers(optax.EmptyState())
    assert is_optimizers(local_sgd("data", 2).init(W))
    assert not is_optimizers(Mine(1))
    assert not is_optimizers((optax.EmptyState(),))
    assert not is_optimizers(optax.MultiSteps(optax.sgd(0.1), 2))


def test_what_is_no_array_is_left_out():
    """As an `extra_args` of any kind, by the name of the loss."""

    def step(w, s, x):
        u, s = TX.update(gradients(w, x), s, w, value="none")
        return optax.apply_updates(w, u), s, ()

    assert look(step, W, TX.init(W)).values == []

"""Marks: the scope that a relaxation is traced in, and how it is read again."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from relaxjax._core.traced._asked import (
    heard_updates,
    meeting_too,
    meets_too,
    numbered,
    passed_over,
    remark,
    remarks,
)
from relaxjax._core.traced._marks import (
    Given,
    Station,
    differentiated,
    doer_of,
    marked,
    merge_of,
    merging_by,
    optimizer_in_it,
    station_of,
)


def doubled(name: str, side: str, axis_name: Any = "data", inside: Any = None) -> Any:
    def init(params):
        jax.tree.map(jnp.zeros_like, params)
        return optax.EmptyState()

    def update(updates, state, params=None, **extra):
        del params
        factor = extra.get("factor", 2)
        return jax.tree.map(lambda u: jnp.sin(u) * factor, updates), state

    return marked(name, side, axis_name, init, update, inside)


def scopes(fn, *args) -> list[str]:
    """The scopes in which sines are taken."""
    program = jax.make_jaxpr(fn)(*args)
    sines = [eqn for eqn in program.eqns if eqn.primitive.name == "sin"]
    return [str(eqn.source_info.name_stack) for eqn in sines]


def updated(tx: optax.GradientTransformation):
    return lambda u: tx.update(u, tx.init(u))[0]


def test_a_scope_is_a_station():
    tx = doubled("mine", "models", ("host", "data"))
    (scope,) = scopes(updated(tx), jnp.ones(2))
    assert station_of(scope) == Station("mine", "models", ("host", "data"), 0)
    assert station_of(f"jit(f)/{scope}/cond").__class__ is Station
    assert station_of("jit(f)/other/name") is None
    both = "a/relaxjax.one/models/x/3/relaxjax.two/gradients/y/4"
    assert station_of(both) == Station("one", "models", ("x",), 3)


def test_stations_have_numbers_of_their_own_where_they_are_counted():
    twice = optax.chain(doubled("mine", "models"), doubled("mine", "models"))
    with numbered():
        inside = scopes(updated(twice), jnp.ones(2))
    outside = scopes(updated(twice), jnp.ones(2))
    for found, numbers in ((inside, [0, 1]), (outside, [0, 0])):
        stations = [station_of(scope) for scope in found]
        assert [at and at.number for at in stations] == numbers


def test_an_update_gets_all_that_it_is_given():
    tx = doubled("mine", "models")
    out, state = tx.update(jnp.zeros(()) + 1, tx.init(jnp.ones(())), None, factor=3)
    assert out == pytest.approx(3 * jnp.sin(1))
    assert state == optax.EmptyState()


@pytest.mark.parametrize("side", ["models", "gradients"])
def test_params_are_checked_when_it_begins(side):
    tx = doubled("mine", side)
    with pytest.raises(TypeError, match="mine: leaf 'a' is the function tanh"):
        tx.init({"a": jnp.tanh})
    with pytest.raises(ValueError, match="mine: leaf 'n' is int32, which has no mean"):
        tx.init({"n": jnp.ones(2, jnp.int32)})


@pytest.mark.parametrize(
    "side", ["gradients", "momenta", "tracking", "models", "optimizer"]
)
def test_which_sides_map_themselves_over_the_devices(side):
    mesh = jax.make_mesh(
        (2,), ("data",), axis_types=(AxisType.Explicit,), devices=jax.devices()[:2]
    )
    with jax.set_mesh(mesh):
        w, tx = jax.device_put(jnp.ones(2), P()), doubled("mine", side)
        if side in ("gradients", "momenta", "optimizer"):
            with pytest.raises(ValueError, match="is already summed over"):
                jax.eval_shape(updated(tx), w)
        else:
            jax.eval_shape(updated(tx), w)


@pytest.mark.parametrize(("inside", "left"), [(None, 1), (optax.scale(5.0), 5)])
def test_where_it_is_passed_over_the_optimizer_inside_is_left(inside, left):
    update = updated(doubled("mine", "models", inside=inside))
    half = jnp.asarray(0.5)
    with passed_over():
        assert update(half) == left * 0.5
        assert doubled("mine", "models", inside=optax.adam(1.0)).init(half)
    assert update(half) == 2 * jnp.sin(0.5)


def test_updates_are_heard_with_their_values_and_params():
    tx, x = doubled("mine", "models"), jnp.ones(())
    state = tx.init(x)
    heard: list[Given] = []
    with heard_updates(heard.append):
        tx.update(x, state, x, value=3)
        tx.update(x, state, value=0)
        tx.update(x, state, x, value=None)
        tx.update(x, state, x, factor=4)
    tx.update(x, state, x, value=7)
    tx.update(x, state, x)
    given = [(x.value, x.updates, x.params) for x in heard]
    assert given == [(3, x, x), (0, x, None), (None, x, x), (None, x, x)]
    assert {x.at[:3] for x in heard} == {("mine", "models", ("data",))}
    assert all(x.state is state is x.made[1] for x in heard)
    assert [x.made[0] for x in heard] == [jnp.sin(x) * k for k in (2, 2, 2, 4)]


def test_of_what_is_inside_a_relaxation_nobody_hears():
    inner: Any = doubled("inner", "gradients")
    outer = marked("outer", "gradients", "data", inner.init, inner.update)
    heard: list[Given] = []
    with heard_updates(heard.append):
        outer.update(jnp.ones(()), outer.init(jnp.ones(())))
    assert [x.at.name for x in heard] == ["outer"]


def test_updates_are_heard_with_their_trace():
    tx, x = doubled("mine", "models"), jnp.ones(())
    state = tx.init(x)
    heard: list[Given] = []
    with heard_updates(heard.append):
        tx.update(x, state)
        jax.jit(lambda x: tx.update(x, state)[0])(x)
        tx.update(x, state)
    first, inside, last = (given.trace for given in heard)
    assert first == last != inside


def test_an_optimizer_that_a_relaxation_calls_is_not_the_relaxation():
    inner: Any = updated(doubled("inner", "gradients"))

    def update(u):
        with jax.named_scope("relaxjax.outer/models/data/0"):
            mine = jnp.sin(u)
            with optimizer_in_it():
                return jnp.sin(mine) + inner(u)

    found = scopes(lambda u: update(u) + jnp.sin(u), jnp.ones(2))
    doers = [doer_of(scope) for scope in found]
    assert [doer and doer.name for doer in doers] == ["outer", None, "inner", None]
    with optimizer_in_it():
        (alone,) = scopes(jnp.sin, jnp.ones(2))
    assert doer_of(alone) is None


def test_gradients_are_taken_of_the_fast_params_of_two():
    pair = optax.LookaheadParams(fast={"w": 1}, slow={"w": 2})
    assert differentiated({"a": [pair, 3], "b": None}) == {
        "a": [{"w": 1}, 3],
        "b": None,
    }


class Kept(NamedTuple):
    params: Any


def keeping(side: str) -> Any:
    """Its state is the params that its `init` is given."""
    return marked("mine", side, "data", lambda params: Kept(params), lambda *_: ())


def test_a_reducer_starts_with_what_gradients_are_taken_of():
    pair = optax.LookaheadParams(fast=jnp.ones(1), slow=jnp.zeros(2))
    for _ in range(2):
        assert keeping("gradients").init(pair).params is pair.fast
    for side in ("tracking", "models", "optimizer"):
        assert keeping(side).init(pair).params is pair


def test_models_that_a_reducer_averages_are_whole():
    pair = optax.LookaheadParams(fast=jnp.ones(1), slow=jnp.zeros(2))
    inner = keeping("gradients")
    outer: Any = marked("outer", "models", "data", inner.init, lambda *_: ())
    assert outer.init(pair).params is pair
    assert inner.init(pair).params is pair.fast


def test_a_remark_is_told_once_and_to_whoever_asks():
    remark("to nobody")
    with remarks() as said:
        for text in ("one", "two", "one"):
            remark(text)
    remark("too late")
    assert said == ["one", "two"]


def test_what_meets_with_the_models_is_said_to_who_asks():
    meets_too({"mu": 4})  # nobody asks
    with meeting_too() as meets:
        meets_too({"params": 2})
        meets_too({"mu": 4, "nu": 8})
        with meeting_too() as inside:
            meets_too({"mu": 16})
    meets_too({"nu": 3})
    assert meets == {"params": 2, "mu": 4, "nu": 8}
    assert inside == {"mu": 16}


def test_a_scope_names_the_rule_that_merges_in_it():
    @merging_by("trimmed")
    def merged(x):
        return jnp.sin(x)

    (scope,) = scopes(merged, jnp.ones(2))
    assert merge_of(scope) == "trimmed"
    assert merge_of(f"jit(f)/{scope}/cond") == "trimmed"
    (other,) = scopes(jnp.sin, jnp.ones(2))
    assert merge_of(other) is None

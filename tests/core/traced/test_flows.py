"""The way of gradients through small programs that a person can follow by eye."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from relaxjax._core.traced._asked import numbered
from relaxjax._core.traced._flows import Flow, Flows, flows_of
from relaxjax._core.traced._marks import Station, marked, merging_by, optimizer_in_it

X = jax.ShapeDtypeStruct((2,), jnp.float32)
AXES = ("host", "data")
OWN = frozenset({("a", "host"), ("a", "data"), ("b", "host"), ("b", "data")})


def flows(
    fn: Callable[..., Any],
    state: Sequence[Any] = (),
    rest: int = 1,
    fields: Sequence[str] | None = None,
) -> Flows:
    """Of `fn(a, b, *state, *rest)`, which returns new a, b and state."""
    sizes: Any = [(axis, 2) for axis in AXES]
    with numbered():
        program = jax.make_jaxpr(fn, axis_env=sizes)(X, X, *state, *[X] * rest)
    return flows_of(program, ["a", "b"], fields or [""] * len(state), AXES)


def of(name: str, *axes: str) -> frozenset[tuple[str, str]]:
    return frozenset((name, axis) for axis in axes or AXES)


def station(side: str, *axes: str, name: str = "mine", sends: bool = True) -> Any:
    """A relaxation as a function of updates: their sum over the axes."""

    def update(updates, state, params=None):
        del params
        if sends:
            updates = jax.tree.map(lambda u: lax.psum(u, axes), updates)
        return updates, state

    tx = marked(name, side, axes, lambda params: (), update)
    return lambda u: tx.update(u, ())[0]


def own(pairs, passed=frozenset()):
    return Flow(pairs, passed, apart=pairs)


def test_a_gradient_is_local_on_every_axis():
    found = flows(lambda a, b, p: (a + p, a * b))
    assert found.of == {"a": own(of("a")), "b": own(OWN)}
    assert found.stations == found.twice == frozenset()
    assert found.communicates is False


def test_a_sum_over_an_axis_ends_what_is_local_there():
    found = flows(lambda a, b, p: (lax.psum(a, "data"), b))
    assert found.of["a"].local == of("a", "host")
    assert found.of["b"].local == of("b")
    assert found.communicates is True
    found = flows(lambda a, b, p: (lax.pmean(a, AXES), b))
    assert found.of["a"].local == frozenset()


def test_a_sum_over_an_axis_of_the_array_sends_nothing():
    found = flows(lambda a, b, p: (a + jnp.sum(a), b))
    assert found.of["a"].local == of("a")
    assert not found.communicates


def test_a_workers_number_is_no_exchange():
    found = flows(lambda a, b, p: (a + lax.axis_index("data"), b))
    assert found.of["a"].local == of("a")
    assert not found.communicates


def test_what_only_decides_is_not_followed():
    def decided(a, b, p):
        by_select = jnp.where(a > 0, b, p)
        by_branch = lax.cond(a[0] > 0, lambda x: x, lambda x: 2 * x, b)
        return by_select, by_branch

    found = flows(decided)
    assert found.of["a"].local == found.of["b"].local == of("b")


def test_branches_and_loops_are_walked():
    def walked(a, b, p):
        branch = lax.cond(p[0] > 0, lambda x, y: x, lambda x, y: y, a, b)
        looped = lax.fori_loop(0, 3, lambda i, x: lax.psum(x, "data"), b)
        return branch, looped

    found = flows(walked)
    assert found.of["a"].local == OWN
    assert found.of["b"].local == of("b", "host")
    assert found.communicates


def test_a_loop_joins_what_goes_round_in_it():
    def joined(a, b, p):
        return lax.fori_loop(0, 3, lambda i, x: (x[1], x[0]), (a, p))

    assert flows(joined).of["b"].local == of("a")
    jitted = jax.jit(lambda x, y: (y, x))  # whose parts are told apart
    found = flows(lambda a, b, p: jitted(a, b))
    assert (found.of["a"].local, found.of["b"].local) == (of("b"), of("a"))


def test_a_loop_of_unknown_length_tells_apart_what_it_carries():
    """What it begins with may come out, as it may take no turn at all."""

    def apart(a, b, p):
        def turn(x):
            count, a, b, late = x
            return count - 1, lax.psum(a, "data"), late, b * lax.psum(p, "data")

        first = p, jnp.zeros_like(a), b, a
        out = lax.while_loop(lambda x: x[0][0] > 0, turn, first)
        return out[1], out[2]

    found = flows(apart)
    assert found.communicates
    assert found.of["a"].local == frozenset()
    assert found.of["b"].local == OWN
    summed = flows(
        lambda a, b, p: lax.while_loop(
            lambda x: p[0] > 0, lambda x: (lax.psum(x[0], AXES), x[1] + p), (a, b)
        )
    )
    assert (summed.of["a"].local, summed.of["b"].local) == (of("a"), of("b"))


def test_a_condition_that_sums_communicates():
    def looped(a, b, p):
        return lax.while_loop(
            lambda x: lax.psum(p[0], "data") > x[1][0], lambda x: x, (a, b)
        )

    assert flows(looped).communicates


def test_programs_of_other_arguments_join_all():
    """The programs of a solver have other arguments, and results, than it has."""

    def solved(a, b, p):
        x = lax.custom_linear_solve(
            lambda x: a * x, p, lambda matvec, y: y / a, lambda vecmat, y: y / a
        )
        return x, b

    found = flows(solved)
    assert (found.of["a"].local, found.of["b"].local) == (of("a"), of("b"))


def test_a_loop_of_unknown_length_joins_what_goes_round_in_it():
    """Its condition decides how often values go round, and has one result."""

    def looped(a, b, p):
        return lax.while_loop(lambda x: x[0][0] > 0, lambda x: x[::-1], (a, b))

    def by_another(a, b, p):
        return lax.while_loop(lambda x: x[0][0] > p[0], lambda x: x[::-1], (a, b))

    for fn in (looped, by_another):
        assert {flow.local for flow in flows(fn).of.values()} == {OWN}


def test_a_type_that_varies_is_no_exchange():
    def retyped(a, b, p):
        types = (jax.sharding.AxisType.Auto,) * 2
        mesh = jax.sharding.AbstractMesh((2, 2), AXES, types)

        def body(x, y):
            return lax.pcast(x, "data", to="varying"), y

        spec = P("host")
        mapped = jax.shard_map(
            body, mesh=mesh, in_specs=spec, out_specs=P(("host", "data"))
        )
        return mapped(a, b)

    program = jax.make_jaxpr(retyped)(X, X, X)
    found = flows_of(program, ["a", "b"], [], AXES)
    assert not found.communicates


def test_a_state_hands_on_what_it_was_given():
    """The gradient of a step comes out of the state two steps later."""
    found = flows(lambda a, b, s, t, p: (t, b, a, s), state=[X, X])
    assert found.of["a"].local == of("a")
    held = flows(lambda a, b, s, p: (s, b, lax.psum(a, AXES)), state=[X])
    assert held.of["a"].local == frozenset()


def test_a_relaxation_is_trusted_on_its_axes():
    found = flows(lambda a, b, p: (station("gradients", "data")(a), b))
    mine = Station("mine", "gradients", ("data",), 0)
    assert found.stations == {mine}
    assert found.of["a"] == own(of("a", "host"), frozenset({mine}))
    assert found.of["b"] == own(of("b"))
    assert found.communicates
    silent = flows(lambda a, b, p: (station("models", "data", sends=False)(a), b))
    assert not silent.stations  # nothing of it is left in the program


def test_a_relaxation_that_sends_nothing_or_elsewhere_is_silent():
    def waits(a, b, p):
        with jax.named_scope("relaxjax.mine/models/data/0"):
            a = jnp.sin(a)
        return a, b

    assert flows(waits).stations == {Station("mine", "models", ("data",), 0)}
    assert not flows(waits).communicates

    def inside(a, b, p):
        with jax.named_scope("relaxjax.mine/models/data/0"):
            a = lax.cond(p[0] > 0, lambda x: lax.psum(x, "data"), lambda x: x, a)
        return a, b

    assert flows(inside).communicates


def test_reduced_twice():
    first, second = station("gradients", "data"), station("gradients", "data")
    found = flows(lambda a, b, p: (second(first(a)), b))
    one, two = (Station("mine", "gradients", ("data",), i) for i in (0, 1))
    assert found.twice == {(one, two)}
    assert not flows(lambda a, b, p: (first(a), second(b))).twice
    over = station("gradients", "host")
    assert not flows(lambda a, b, p: (over(first(a)), b)).twice
    models = station("models", "data")
    assert not flows(lambda a, b, p: (models(first(a)), b)).twice
    assert not flows(lambda a, b, p: (first(models(a)), b)).twice


def test_what_stands_behind_a_relaxation_of_models():
    models, gradients = station("models", "data"), station("gradients", "data")
    at = Station("mine", "models", ("data",), 0)
    found = flows(lambda a, b, p: (models(a) * 2, b))
    assert found.of["a"].behind == {(at, "mul")}
    assert not flows(lambda a, b, p: (gradients(a) * 2, b)).of["a"].behind
    assert not flows(lambda a, b, p: (models(a * 2), b)).of["a"].behind
    further = flows(lambda a, b, p: (jnp.sin(models(a) * 2), b))
    assert further.of["a"].behind == {(at, "mul"), (at, "sin")}
    kept = flows(lambda a, b, p: (gradients(models(a) * 2), b))
    assert kept.of["a"].behind == {(at, "mul")}


def test_moves_and_choices_are_no_arithmetic():
    models = station("models", "data")

    def moved(a, b, p):
        a = models(a)
        return jnp.concatenate([a[1:], a[:1]]).astype(jnp.bfloat16), b

    def chosen(a, b, p):
        a = models(a)
        yes = p > 0
        return jnp.where(yes, a, 0 * b) * yes.astype(a.dtype), b

    def scaled(a, b, p):
        return models(a) * p.astype(jnp.int32).astype(jnp.float32), b

    assert not flows(moved).of["a"].behind
    assert not flows(chosen).of["a"].behind
    assert [name for _, name in flows(scaled).of["a"].behind] == ["mul"]


def test_a_flag_is_no_longer_one_after_arithmetic_or_a_sum():
    models = station("models", "data")

    def by(change):
        def update(a, b, p):
            flag = (p > 0).astype(jnp.float32)
            return models(a) * change(flag, p), b

        return flows(update).of["a"].behind

    assert not by(lambda flag, p: flag)
    assert not by(lambda flag, p: flag.reshape(1, 2)[0])
    assert by(lambda flag, p: lax.psum(flag, "data"))
    assert by(lambda flag, p: flag + p)
    added = flows(lambda a, b, p: (models(a) + (p > 0).astype(jnp.float32), b))
    assert [name for _, name in added.of["a"].behind] == ["add"]


def led_by(update: Callable[..., Any], field: str = "mu") -> set[tuple[int, str]]:
    """The relaxations behind an optimizer whose state is one array."""
    found = flows(update, [X], fields=[field])
    return {(at.number, kept) for at, kept in found.led}


def test_behind_an_optimizer_is_behind_arithmetic_with_what_it_remembers():
    at = station("gradients", "data")
    assert led_by(lambda a, b, mu, p: (at(a + mu), b, a + mu)) == {(0, "mu")}
    assert led_by(lambda a, b, mu, p: (at(a * mu), b, a)) == {(0, "mu")}
    assert led_by(lambda a, b, mu, p: (at(at(a + mu)), b, a)) == {(0, "mu"), (1, "mu")}


def test_what_comes_late_or_from_nowhere_is_no_optimizer():
    at = station("gradients", "data")
    assert led_by(lambda a, b, old, p: (at(old), b, a)) == set()
    assert led_by(lambda a, b, old, p: (at(jnp.where(p > 0, a, old)), b, a)) == set()
    assert led_by(lambda a, b, rate, p: (at(a * rate), b, rate / 2)) == set()
    assert led_by(lambda a, b, mu, p: (at(a) + mu, b, at(a))) == set()
    for field in ("", "acc_grads", "accumulated", "grad_acc"):
        summed = led_by(lambda a, b, sums, p: (at(sums + a), b, sums + a), field)
        assert summed == set()


def test_an_optimizer_in_a_relaxation_of_models_leads_what_is_inside_alone():
    inner = station("gradients", "data")

    def around(step):
        def update(updates, mu, params=None):
            with optimizer_in_it():
                out = step(updates, mu)
            return jax.tree.map(lambda u: lax.psum(u, "host"), out), updates

        tx = marked("outer", "models", ("host",), lambda params: (), update)
        return lambda a, b, mu, p: (*(out := tx.update(a, mu))[:1], b, out[1])

    assert led_by(around(lambda u, mu: inner(u + mu))) == {(1, "mu")}
    assert led_by(around(lambda u, mu: u + mu)) == set()
    assert led_by(around(lambda u, mu: inner(u) + mu)) == set()


def test_a_relaxations_own_memory_is_no_optimizers():
    def update(updates, owed, params=None):
        return lax.psum(updates + owed, "data"), updates - owed

    tx = marked("mine", "gradients", ("data",), lambda params: (), update)

    def chain(a, b, owed, p):
        out, owed = tx.update(a, owed)
        return out, b, owed

    assert led_by(chain) == set()


def test_what_an_optimizer_made_is_its_own_a_step_late_too():
    at = station("gradients", "data")

    def late(a, b, mu, old, p):
        return at(old), b, a, a + mu

    found = flows(late, [X, X], fields=["mu", ""])
    assert {kept for _, kept in found.led} == {"mu"}


def test_a_sum_over_an_axis_ends_what_is_apart_there():
    def update(a, b, mu, p):
        return lax.psum(a, AXES) + mu, b, lax.psum(a, AXES)

    assert not flows(update, [X], fields=["mu"]).of["a"].used
    near = flows(lambda a, b, p: (lax.psum(a, "data"), b))
    assert near.of["a"].apart == of("a", "host")


def test_what_is_kept_may_come_from_what_was_kept():
    at = station("gradients", "data")
    found = flows(
        lambda a, b, old, mu, p: (at(mu + p), b, a, old), [X, X], fields=["", "mu"]
    )
    assert {kept for _, kept in found.led} == {"mu"}


def test_rules_of_merging_are_found_in_a_relaxation_alone():
    def update(updates, state, params=None):
        with merging_by("median"):
            return lax.cond(updates[0] > 0, jnp.sin, jnp.cos, updates), state

    tx = marked("mine", "models", ("data",), lambda params: (), update)
    found = flows(lambda a, b, p: (tx.update(a, ())[0], b))
    at = Station("mine", "models", ("data",), 0)
    assert found.merges == {(at, "median")}


def test_models_are_idle_by_reducers_over_all_of_their_axes_alone():
    wide, near = station("gradients", *AXES), station("gradients", "data")

    def idle(reducer, *axes):
        models = station("models", *axes)
        found = flows(lambda a, b, p: (models(reducer(a)), models(reducer(b))))
        return {(x.axes, y.axes) for x, y in found.idle}

    assert idle(wide, "data") == {(AXES, ("data",))}
    assert idle(near, "data") == {(("data",), ("data",))}
    assert idle(near, "host") == set()
    far = station("gradients", "host")
    for reducer in (far, near):
        found = flows(lambda a, b, p, by=reducer: (by(near(a)), by(near(b))))
        assert found.idle == set()
    models = station("models", "data")
    both = flows(lambda a, b, p: (models(far(near(a))), models(far(near(b)))))
    assert {x.axes for x, _ in both.idle} == {("data",)}

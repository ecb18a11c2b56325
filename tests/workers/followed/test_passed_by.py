"""A step may do more than its transformation says: what passes it by is warned of."""

import linecache
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from jax import lax

import relaxjax
from relaxjax import all_reduce, compression, emulate, fsdp, local_sgd
from relaxjax.workers.followed._looked import Looked
from relaxjax.workers.followed._places import by_moments, optimizers_in

BATCH = np.arange(24.0, dtype=np.float32).reshape(8, 3)
PARAMS = {"w": jnp.ones(3), "b": jnp.ones(())}
REDUCED: Any = optax.chain(all_reduce("data"), optax.adam(0.1))
LOCAL = optax.chain(optax.adam(0.1), local_sgd("data", 2))
CODED: Any = optax.chain(
    all_reduce("data", compressor=compression.error_feedback(compression.sign())),
    optax.sgd(0.1),
)


def loss_of(p: Any, x: Any) -> Any:
    return ((x @ p["w"] + p["b"]) ** 2).mean()


def good(tx: Any) -> Any:
    def step(p, s, x):
        loss, g = jax.value_and_grad(loss_of)(p, x)
        u, s = tx.update(g, s, p)
        return optax.apply_updates(p, u), s, {"loss": loss}

    return step


def without_params(tx: Any) -> Any:
    def step(p, s, x):
        u, s = tx.update(jax.grad(loss_of)(p, x), s)
        return optax.apply_updates(p, u), s, ()

    return step


def jitted(tx: Any) -> Any:
    return jax.jit(good(tx))


class Rates(NamedTuple):
    """A state of the user's own, which is no optimizer's."""

    of: Any


def frozen_beside(tx: Any) -> Any:
    """Numbers of the state that a step reads, and need not change."""

    def step(p, rates, s, x):
        g = jax.tree.map(jnp.multiply, jax.grad(loss_of)(p, x), rates.of)
        u, s = tx.update(g, s, p)
        return optax.apply_updates(p, u), rates, s, ()

    return step


def measured(tx: Any) -> Any:
    """Statistics of a worker's own batch are no params."""

    def step(p, seen, s, x):
        u, s = tx.update(jax.grad(loss_of)(p, x), s, p)
        seen = jax.tree.map(lambda a: a + x.mean(), seen)
        return optax.apply_updates(p, u), seen, s, ()

    return step


def clipped_by_all(tx: Any) -> Any:
    """A decision that all workers take together."""

    def step(p, s, x):
        g = jax.grad(loss_of)(p, x)
        u, s = tx.update(g, s, p)
        finite = lax.pmin(jnp.isfinite(g["b"]).astype(jnp.float32), "data")
        return jax.tree.map(lambda p, u: p + u * finite, p, u), s, ()

    return step


def raw_beside(tx: Any) -> Any:
    """A decay of its own, by the gradients that nothing reduced."""

    def step(p, s, x):
        g = jax.grad(loss_of)(p, x)
        u, s = tx.update(g, s, p)
        new: Any = optax.apply_updates(p, u)
        return {**new, "b": new["b"] - 0.01 * g["b"]}, s, ()

    return step


def raw_without_params(tx: Any) -> Any:
    def step(p, s, x):
        g = jax.grad(loss_of)(p, x)
        u, s = tx.update(g, s)
        new: Any = optax.apply_updates(p, u)
        return {**new, "b": new["b"] - 0.01 * g["b"]}, s, ()

    return step


def raw_alone(tx: Any) -> Any:
    """The updates are computed, and the gradients applied."""

    def step(p, s, x):
        g = jax.grad(loss_of)(p, x)
        _, s = tx.update(g, s, p)
        return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), s, ()

    return step


def skipped_alone(tx: Any) -> Any:
    """Each worker looks at its own gradients only."""

    def step(p, s, x):
        g = jax.grad(loss_of)(p, x)
        u, s = tx.update(g, s, p)
        finite = jnp.isfinite(g["b"])
        return jax.tree.map(lambda p, u: jnp.where(finite, p + u, p), p, u), s, ()

    return step


def scaled_alone(tx: Any) -> Any:
    """A rate by the worker's own loss."""

    def step(p, s, x):
        loss, g = jax.value_and_grad(loss_of)(p, x)
        u, s = tx.update(g, s, p)
        return jax.tree.map(lambda p, u: p + u / (1 + loss), p, u), s, ()

    return step


def forgetful(tx: Any) -> Any:
    def step(p, s, x):
        u, _ = tx.update(jax.grad(loss_of)(p, x), s, p)
        return optax.apply_updates(p, u), s, ()

    return step


def said(
    step: Any, tx: Any, others: int = 0, mesh: Any = None, closed: bool = False
) -> list[str]:
    """What the first two steps say; `others` states like params stand between.

    A step may be `closed` over a number of a trace around both, such as a rate.
    """
    mesh = mesh or emulate(4)
    params, opt_state = relaxjax.init(tx, PARAMS, mesh)
    own = Rates(PARAMS) if step is frozen_beside else PARAMS
    between = [relaxjax.to_workers(own, mesh)] * others

    def train(state, rate):
        def scaled(*args):
            *state, x = args
            return step(tx)(*state, x if rate is None else rate * x)

        run = relaxjax.data_parallel(scaled, mesh)
        for _ in range(2):
            *state, _ = run(*state, BATCH)

    state = (params, *between, opt_state)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jax.jit(train)(state, 0.9) if closed else train(state, None)
    return texts_of(caught)


def texts_of(caught: list[Any]) -> list[str]:
    """What was said, and at which line: that of the call of the step."""
    lines = {linecache.getline(w.filename, w.lineno).strip() for w in caught}
    assert lines <= {"*state, _ = run(*state, BATCH)", "run(*now, BATCH)"}
    return [str(w.message) for w in caught]


HYPER: Any = optax.inject_hyperparams(optax.adam)(0.1)  # numbers that no step changes
TXS = {
    "reduced": REDUCED,
    "local": LOCAL,
    "coded": CODED,
    "with hyperparams": optax.chain(all_reduce("data"), HYPER),
}
PLACES = {"emulated": emulate(4), "mesh": jax.make_mesh((4,), ("data",))}
RIGHT: dict[str, Any] = {
    "as it should be": (good, 0),
    "jitted": (jitted, 0),
    "numbers that stay": (frozen_beside, 1),
    "statistics": (measured, 1),
    "decided together": (clipped_by_all, 0),
}
PARTS: dict[str, Any] = {
    "raw gradients beside": raw_beside,
    "raw gradients alone": raw_alone,
    "skipped alone": skipped_alone,
    "scaled alone": scaled_alone,
}


@pytest.mark.few(40)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", TXS)
@pytest.mark.parametrize("how", RIGHT)
@pytest.mark.parametrize("closed", [False, True], ids=["alone", "closed"])
def test_right_steps_are_silent(closed, how, name, place):
    step, others = RIGHT[how]
    assert said(step, TXS[name], others, PLACES[place], closed) == []


@pytest.mark.few(32)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", TXS)
@pytest.mark.parametrize("how", PARTS)
@pytest.mark.parametrize("closed", [False, True], ids=["alone", "closed"])
def test_what_passes_the_relaxations_by_is_warned_of_once(closed, how, name, place):
    (text,) = said(PARTS[how], TXS[name], mesh=PLACES[place], closed=closed)
    assert "depend on each worker's own batch over ['data']" in text
    assert ("params 'b'" in text) or how != "raw gradients beside"


def test_updates_without_params_are_those_of_the_argument_like_them():
    assert said(without_params, REDUCED) == []
    (text,) = said(raw_without_params, REDUCED)
    assert "params 'b' depend" in text


def test_a_jitted_step_is_looked_into():
    (text,) = said(lambda tx: jax.jit(raw_beside(tx)), REDUCED)
    assert "params 'b' depend" in text
    (text,) = said(lambda tx: jax.jit(forgetful(tx)), REDUCED)
    assert "returns it as it was" in text


def test_a_phase_without_a_reducer_is_warned_of_where_it_begins():
    tx = optax.chain(relaxjax.before_step(all_reduce("data"), 1), optax.sgd(0.1))
    (text,) = said(good, tx)
    assert "nothing in it brings the workers together" in text
    tx = optax.chain(relaxjax.before_step(optax.scale(2.0), 1), REDUCED)
    assert said(good, tx) == []


@pytest.mark.parametrize("name", TXS)
def test_a_state_that_is_dropped_is_warned_of_once(name):
    (text,) = said(forgetful, TXS[name])
    assert "its argument 1, and returns it as it was" in text


@pytest.mark.parametrize(
    "tx",
    [
        optax.chain(all_reduce("data"), optax.scale_by_schedule(lambda n: -0.1 * n)),
        optax.chain(optax.trace(0.9), optax.scale(-0.1)),
    ],
    ids=["a count", "momenta"],
)
def test_so_is_one_that_alone_tells_what_the_params_are(tx):
    """A relaxation is given them, or moments are like them."""

    def step(p, s, x):
        g = jax.lax.pmean(jax.grad(loss_of)(p, x), "data")
        return optax.apply_updates(p, tx.update(g, s, p)[0]), s, ()

    state = relaxjax.to_workers((PARAMS, tx.init(PARAMS)), emulate(4))
    with pytest.warns(UserWarning, match="its argument 1, and returns it as it was"):
        relaxjax.data_parallel(step, emulate(4))(*state, BATCH)


def test_without_relaxations_one_of_two_states_may_be_read_and_stay():
    """As an average that a first stage has left."""

    def step(p, s, first, x):
        mean = jax.lax.pmean(jax.grad(loss_of)(p, x), "data")
        count, mu, nu = first[0]
        near = jax.tree.map(lambda g, m, v: g + count * m + v, mean, mu, nu)
        u, s = ADAM.update(near, s, p)
        return optax.apply_updates(p, u), s, first, ()

    state = relaxjax.to_workers(
        (PARAMS, ADAM.init(PARAMS), ADAM.init(PARAMS)), emulate(4)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relaxjax.data_parallel(step, emulate(4))(*state, BATCH)


def test_a_state_that_is_not_read_may_stay():
    """As of a discriminator in the generator's step."""
    mesh = emulate(4)

    def step(p, other, mine, x):
        u, mine = REDUCED.update(jax.grad(loss_of)(p, x), mine, p)
        return optax.apply_updates(p, u), other, mine, ()

    params, state = relaxjax.init(REDUCED, PARAMS, mesh)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relaxjax.data_parallel(step, mesh)(params, state, state, BATCH)


def test_states_of_ones_own_are_no_optimizers():
    state: Any = optax.adam(0.1).init(PARAMS)
    parts = optimizers_in((Rates(PARAMS), state, PARAMS))
    assert [part for part, _ in parts] == [*state]
    assert parts[0][1].start == len(jax.tree.leaves(PARAMS))


def test_params_are_those_that_momenta_are_like():
    tx: Any = optax.inject_hyperparams(optax.adam)(0.1)
    state = (jnp.zeros(()), PARAMS, tx.init(PARAMS))
    assert by_moments(Looked(None, state, [], [], False)).places == [1, 2]


def test_a_state_inside_of_one_is_like_no_params():
    """That of `MultiSteps` holds another optimizer's, which stands first here."""
    inner = optax.chain(optax.trace(0.9), optax.scale(-0.1))
    around = optax.MultiSteps(inner, 2).init(PARAMS)
    state = (inner.init(PARAMS), PARAMS, around)
    assert by_moments(Looked(None, state, [], [], False)).places == [2, 3]


def evaluated(p, s, x):
    """A schedule-free average, of which the state keeps one half."""
    average = optax.contrib.schedule_free_eval_params(s[1], p)
    return p, s, {"loss": loss_of(average, x)}


def logged(p, s, x):
    return p, s, {"rate": s[1].hyperparams["learning_rate"] * loss_of(p, x)}


FREE = optax.chain(all_reduce("data"), optax.contrib.schedule_free_sgd(0.1))


@pytest.mark.parametrize(
    ("step", "tx"), [(evaluated, FREE), (logged, TXS["with hyperparams"])]
)
def test_a_step_that_trains_nothing_may_read_a_state(step, tx):
    assert said(lambda _: step, tx) == []


@pytest.mark.parametrize("tx", [FREE, REDUCED], ids=["free", "adam"])
def test_an_evaluation_may_read_a_state_and_carry_its_loss(tx):
    """As one of weights in codes, which owe something; params do not move."""

    def step(p, s, total, x):
        owed = sum(leaf.sum() for leaf in jax.tree.leaves(s))
        return p, s, total + loss_of(p, x) + 0.1 * owed, ()

    params, state = relaxjax.init(tx, PARAMS, emulate(4))
    total = relaxjax.to_workers(np.float32(0), emulate(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relaxjax.data_parallel(step, emulate(4))(params, state, total, BATCH)


def test_what_each_worker_gathers_beside_a_training_may_be_its_own():
    """As squares of gradients, in a tree like the params; the loss is averaged."""

    def step(squares, p, s, x):
        loss, g = jax.value_and_grad(loss_of)(p, x)
        squares = jax.tree.map(lambda q, g: q + g**2, squares, g)
        return squares, p, s, {"loss": lax.pmean(loss, "data")}

    mesh = emulate(4)
    params, state = relaxjax.init(ALONE, PARAMS, mesh, reduced_in_step=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relaxjax.data_parallel(step, mesh)(params, params, state, BATCH)


def test_a_state_that_is_kept_beside_one_that_goes_on():
    """As a rate that falls when an epoch was no better, outside of the step."""
    plateau = optax.contrib.reduce_on_plateau()

    def step(p, s, kept, x):
        u, s = REDUCED.update(jax.grad(loss_of)(p, x), s, p)
        u = jax.tree.map(lambda u: kept.scale * u, u)
        return optax.apply_updates(p, u), s, kept, ()

    params, state = relaxjax.init(REDUCED, PARAMS, emulate(4))
    kept = relaxjax.to_workers(plateau.init(PARAMS), emulate(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relaxjax.data_parallel(step, emulate(4))(params, state, kept, BATCH)


def meeting_later(late: bool) -> Any:
    if late:
        inside = relaxjax.post_local_sgd(optax.adam(0.1), "data", 2, 4)
        return relaxjax.accumulate(inside, 2)
    return optax.chain(
        relaxjax.before_step(all_reduce("data"), 2),
        optax.adam(0.1),
        relaxjax.from_step(local_sgd("data", 2), 2),
    )


def scanned(tx: Any) -> Any:
    def step(p, s, x):
        def one(state, x):
            p, s = state
            u, s = tx.update(jax.grad(loss_of)(p, x), s, p)
            return (optax.apply_updates(p, u), s), ()

        (p, s), _ = lax.scan(one, (p, s), x.reshape(2, -1, 3))
        return p, s, ()

    return step


@pytest.mark.parametrize(("step", "late"), [(good, True), (scanned, False)])
def test_of_phases_that_counts_choose_nothing_is_said(step, late):
    assert said(step, meeting_later(late)) == []


def test_leaves_of_ones_own_may_part():
    tx = optax.chain(
        optax.partition(
            {"all": all_reduce("data"), "own": relaxjax.local()},
            {"w": "all", "b": "own"},
        ),
        optax.sgd(0.1),
    )
    assert said(good, tx) == []
    assert said(raw_beside, tx) == []
    (text,) = said(raw_alone, tx)
    assert "params 'w' depend" in text


def test_leaves_of_ones_own_may_part_where_models_meet_over_another_axis():
    """The second relaxation is given all params, and may mix them."""
    inside = optax.partition(
        {"all": all_reduce("data"), "own": relaxjax.local()}, {"w": "all", "b": "own"}
    )
    tx = optax.chain(inside, optax.sgd(0.1), local_sgd("host", 2))
    hosts = emulate({"host": 2, "data": 2})
    assert said(good, tx, mesh=hosts) == []
    assert said(raw_alone, tx, mesh=hosts) == []  # nobody can know whose it is


def test_a_bare_array_of_ones_own_may_part():
    """Its leaf has no name."""
    tx = optax.chain(relaxjax.local(), optax.adam(0.1))

    def step(w, s, x):
        loss, g = jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
        u, s = tx.update(g, s, w)
        return w + u, s, {"loss": lax.pmean(loss, "data")}

    state = relaxjax.init(tx, jnp.ones(3), emulate(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relaxjax.data_parallel(step, emulate(4))(*state, BATCH)


def test_slices_of_params_are_no_optimizers():
    slices, state = fsdp.init(optax.adam(0.1), PARAMS, emulate(2))
    assert optimizers_in((slices, 1)) == []
    assert optimizers_in((slices, state))


def test_slices_differ_by_right():
    """A decay needs no gradient, and each worker decays slices of its own."""
    tx = optax.chain(optax.add_decayed_weights(0.1), optax.adam(0.1))

    def step(slices, state, x):
        zeros = jax.tree.map(jnp.zeros_like, slices)
        u, state = tx.update(zeros, state, slices)
        return optax.apply_updates(slices, u), state, {"x": x.sum()}

    state = fsdp.init(tx, PARAMS, emulate(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relaxjax.data_parallel(step, emulate(2))(*state, BATCH)


def test_models_part_over_all_axes():
    hosts = emulate({"host": 2, "data": 2})
    tx = optax.chain(all_reduce(("host", "data")), optax.sgd(0.1))
    (text,) = said(raw_alone, tx, mesh=hosts)
    assert "params 'b' depend on each worker's own batch over ['data', 'host']" in text


def test_models_that_meet_over_one_axis_part_over_the_other():
    hosts = emulate({"host": 2, "data": 2})
    tx = optax.chain(all_reduce("data"), optax.adam(0.1), local_sgd("host", 2))
    assert said(good, tx, mesh=hosts) == []

    def near(tx):
        def step(p, s, x):
            g = jax.grad(loss_of)(p, x)
            u, s = tx.update(g, s, p)
            g = jax.tree.map(lambda g: lax.pmean(g, "data"), g)
            return jax.tree.map(lambda p, u, g: p + u - g, p, u, g), s, ()

        return step

    (text,) = said(near, tx, mesh=hosts)
    assert "own batch over ['host']" in text


def stepped(step: Any, *state: Any, mesh: Any = None) -> list[str]:
    """What the first step says of states as `to_workers` makes them."""
    mesh = mesh or emulate(4)
    run = relaxjax.data_parallel(step, mesh)
    now = relaxjax.to_workers(state, mesh)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(*now, BATCH)
    return texts_of(caught)


ADAM = optax.adam(0.1)


def with_mean_of(what: str) -> Any:
    """A step that brings together its loss alone, or its gradients too."""

    def step(p, s, x):
        loss, g = jax.value_and_grad(loss_of)(p, x)
        if what == "all":
            g = lax.pmean(g, "data")
        elif what == "half":
            g = {**g, "w": lax.pmean(g["w"], "data")}
        u, s = ALONE.update(g, s, p)
        return optax.apply_updates(p, u), s, {"loss": lax.pmean(loss, "data")}

    return step


ALONE = optax.adam(0.1)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("what", "leaf"), [("loss", "b"), ("half", "b"), ("all", None)]
)
def test_a_metric_that_meets_is_no_reducer(what, leaf, place):
    mesh = PLACES[place]
    state = relaxjax.init(ALONE, PARAMS, mesh, reduced_in_step=True)
    run = relaxjax.data_parallel(with_mean_of(what), mesh)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        *state, _ = run(*state, BATCH)
    said = texts_of(caught)
    assert len(said) == (leaf is not None)
    for text in said:
        assert f"params {leaf!r} depend on each worker's own" in text
        assert "Put relaxjax.all_reduce('data') before the optimizer" in text


def test_an_average_of_params_trains_nothing():
    average = optax.ema(0.9)

    def step(kept, p, x):
        return average.update(p, kept)[1], p, {"loss": loss_of(p, x)}

    run = relaxjax.data_parallel(step, emulate(4))
    kept, params = relaxjax.to_workers((average.init(PARAMS), PARAMS), emulate(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(kept, params, BATCH)


class Trained(NamedTuple):
    """A whole training in one argument, as flax's TrainState."""

    count: Any
    moments: Any
    params: Any


@pytest.mark.parametrize("inside", [jax.jit, lambda step: step])
def test_params_inside_of_an_argument_are_found(inside):
    def step(state, x):
        g = jax.grad(loss_of)(state.params, x)
        u, moments = REDUCED.update(g, state.moments)
        u["b"] += g["b"]
        p = optax.apply_updates(state.params, u)
        return Trained(state.count + 1, moments, p), ()

    params, moments = relaxjax.init(REDUCED, PARAMS, emulate(4))
    state = [Trained(relaxjax.to_workers(0, emulate(4)), moments, params)]
    run = relaxjax.data_parallel(inside(step), emulate(4))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        *state, _ = run(*state, BATCH)
    (text,) = texts_of(caught)
    assert "params 'params/b' depend" in text


def test_an_optimizer_that_nobody_synchronizes_is_warned_of():
    for tx in (ADAM, HYPER):
        for n in (2, 4):
            (text,) = stepped(good(tx), PARAMS, tx.init(PARAMS), mesh=emulate(n))
            assert "each trains a model of its own" in text
    assert stepped(good(ADAM), PARAMS, ADAM.init(PARAMS), mesh=emulate(1)) == []


def test_gradients_that_the_step_reduces_are_synchronized():
    def step(p, s, x):
        g = lax.pmean(jax.grad(loss_of)(p, x), "data")
        u, s = ADAM.update(g, s, p)
        return optax.apply_updates(p, u), s, ()

    assert stepped(step, PARAMS, ADAM.init(PARAMS)) == []


def test_a_step_that_trains_nothing_may_be_alone():
    def evaluate(p, s, seen, x):
        return p, s, seen + loss_of(p, x), {"loss": loss_of(p, x)}

    assert stepped(evaluate, PARAMS, ADAM.init(PARAMS), jnp.zeros(())) == []


def test_an_nnx_optimizer_that_nobody_synchronizes_is_warned_of():
    def model_and_optimizer(tx: Any) -> Any:
        model = nnx.Linear(3, 2, rngs=nnx.Rngs(0))
        return model, nnx.Optimizer(model, tx, wrt=nnx.Param)

    def step(model, optimizer, x):
        grads = nnx.grad(lambda m: jnp.mean(m(x) ** 2))(model)
        optimizer.update(model, grads)
        return model, optimizer, {}

    (text,) = stepped(step, *model_and_optimizer(ADAM))
    assert "each trains a model of its own" in text
    assert stepped(step, *model_and_optimizer(REDUCED)) == []

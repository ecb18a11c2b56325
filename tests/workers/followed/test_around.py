"""What a step does around its relaxations, and what it may do."""

import linecache
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

import relaxjax
from relaxjax import all_reduce, compression, diloco, emulate, local_sgd

BATCH = np.arange(24.0, dtype=np.float32).reshape(8, 3) / 24
PARAMS = {"w": jnp.ones(3), "b": jnp.ones(())}
REDUCED: Any = optax.chain(all_reduce("data"), optax.adam(0.1))
LOCAL: Any = optax.chain(optax.adam(0.1), local_sgd("data", 2))
FEEDBACK: Any = all_reduce(
    "data", compressor=compression.error_feedback(compression.top_k(0.5))
)


def loss_of(p: Any, x: Any) -> Any:
    return ((x @ p["w"] + p["b"]) ** 2).mean()


def gradient(p: Any, x: Any) -> Any:
    return jax.grad(loss_of)(p, x)


def said(step: Any, *state: Any, mesh: Any = None, steps: int = 3) -> str:
    """What is said of some steps, of states with a worker axis; at most one thing."""
    run = relaxjax.data_parallel(step, mesh or emulate(4))
    now: Any = state
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(steps):
            *now, _ = run(*now, BATCH)
    assert len(caught) <= 1
    lines = {linecache.getline(w.filename, w.lineno).strip() for w in caught}
    assert lines <= {"*now, _ = run(*now, BATCH)"}
    return "".join(str(w.message) for w in caught)


def started(tx: Any, params: Any = PARAMS, mesh: Any = None) -> Any:
    """State that nothing has looked at, as of a TrainState that is handed out."""
    return relaxjax.to_workers((params, tx.init(params)), mesh or emulate(4))


def trains(tx: Any, before: Any = None, after: Any = None, add: Any = None) -> Any:
    """A step that changes gradients before the update, and updates after it."""

    def step(p, s, x):
        g = gradient(p, x)
        u, s = tx.update(before(g) if before else g, s, p)
        u = jax.tree.map(after, u) if after else u
        return add(p, u) if add else optax.apply_updates(p, u), s, {"x": x.sum()}

    return step


def minus(p: Any, u: Any) -> Any:
    return jax.tree.map(jnp.subtract, p, u)


CHANGED = {
    "halved": (LOCAL, lambda u: 0.5 * u, None, "mul"),
    "clipped": (
        diloco(optax.adam(0.1), "data", 2),
        lambda u: jnp.maximum(u, -1e-3),
        None,
        "max",
    ),
    "subtracted": (LOCAL, None, minus, "sub"),
    "decayed": (LOCAL, lambda u: u + 0.1, None, "add"),
    "before an optimizer": (
        optax.chain(local_sgd("data", 2), optax.trace(0.9)),
        None,
        None,
        "add",
    ),
}


@pytest.mark.parametrize("how", CHANGED)
def test_updates_that_are_changed_behind_models_are_warned_of(how):
    tx, after, add, operation = CHANGED[how]
    text = said(trains(tx, after=after, add=add), *started(tx))
    name = "diloco" if how == "clipped" else "local_sgd"
    assert f"changes the updates of {name} (by `{operation}`) before" in text


def skipping(p: Any, u: Any) -> Any:
    finite = jnp.isfinite(optax.tree.norm(u))
    return jax.tree.map(lambda p, u: jnp.where(finite, p + u, p), p, u)


def skipped(p: Any, u: Any) -> Any:
    finite = jnp.isfinite(optax.tree.norm(u))
    return lax.cond(finite, optax.apply_updates, lambda p, u: p, p, u)


def together(p: Any, u: Any) -> Any:
    finite = jnp.isfinite(optax.tree.norm(u)).astype(jnp.float32)
    finite = lax.pmin(finite, "data")
    return jax.tree.map(lambda p, u: p + u * finite, p, u)


def projected(p: Any, u: Any) -> Any:
    return jax.tree.map(lambda p, u: jnp.clip(p + u, -1, 1), p, u)


def cast(p: Any, u: Any) -> Any:
    p = jax.tree.map(lambda p: p.astype(jnp.bfloat16).astype(p.dtype), p)
    return jax.tree.map(lambda p, u: (u.reshape(u.shape) + p) * 1, p, u)


@pytest.mark.parametrize("add", [None, skipping, skipped, together, projected, cast])
@pytest.mark.parametrize("tx", [LOCAL, diloco(optax.adam(0.1), "data", 2), REDUCED])
def test_updates_may_be_skipped_and_params_projected(tx, add):
    if tx is not REDUCED or add is not None:
        assert said(trains(tx, add=add), *started(tx)) == ""


def flag(x: Any) -> Any:
    return (x.sum() > 0).astype(jnp.float32)


def repeated(p: Any, u: Any, x: Any) -> Any:
    del x
    return lax.fori_loop(0, 2, lambda _, now: now, p + u)


def stepped(p: Any, u: Any, x: Any) -> Any:
    del x
    return lax.scan(lambda now, _: (now, None), p + u, jnp.arange(2))[0]


def lost(p: Any, u: Any, x: Any) -> Any:
    """In a loop nobody follows it."""
    del x
    return p + lax.fori_loop(0, 2, lambda _, now: 2 * now, u)


ON_THE_WAY: dict[str, tuple[Any, str | None]] = {
    "added": (lambda p, u, x: u + p, None),
    "moved": (lambda p, u, x: p + u[None].astype(jnp.float16)[0], None),
    "called": (lambda p, u, x: p + jax.jit(lambda u: u.T)(u), None),
    "called and doubled": (lambda p, u, x: p + jax.jit(lambda u: 2 * u)(u), "mul"),
    "twice": (lambda p, u, x: p + u + u, "add"),
    "by a flag": (lambda p, u, x: p + flag(x) * u, None),
    "by two flags": (lambda p, u, x: p + u * (flag(x) * flag(-x)), None),
    "by the least flag": (lambda p, u, x: p + u * jnp.minimum(flag(x), flag(-x)), None),
    "by a flag of its own": (lambda p, u, x: p + flag(u) * u, None),
    "by a sum of flags": (lambda p, u, x: p + u * (flag(x) + flag(-x)), "mul"),
    "by less than a flag": (lambda p, u, x: p + u * jnp.minimum(flag(x), 0.5), "mul"),
    "by the larger": (lambda p, u, x: p + jnp.maximum(u, flag(x)), "max"),
    "after something": (lambda p, u, x: (p + 1) + u, None),
    "by a number": (lambda p, u, x: p + u * x.size.__float__(), "mul"),
    "by what is counted": (
        lambda p, u, x: p + u * (x > 0).astype(jnp.int32).sum().astype(jnp.float32),
        "mul",
    ),
    "two things": (lambda p, u, x: p + (2 * u - 1), "mul"),
    "to another": (lambda p, u, x: 2 * p + u, "add"),
    "taken away": (lambda p, u, x: p - u, "sub"),
    "less something": (lambda p, u, x: p + (u - 1), "sub"),
    "chosen by itself": (lambda p, u, x: jnp.where(u > 0, p + u, p), None),
    "one of two": (lambda p, u, x: p + lax.select(u > 0, u, 2 * u), "mul"),
    "by a branch": (
        lambda p, u, x: lax.cond(u.sum() > 0, lambda: p + u, lambda: p),
        None,
    ),
    "in a branch": (
        lambda p, u, x: lax.cond(x.sum() > 0, lambda: p + 2 * u, lambda: p),
        "mul",
    ),
    "in its place": (lambda p, u, x: u, None),
    "and then repeated": (repeated, None),
    "and then stepped": (stepped, None),
    "in a loop": (lost, None),
}


@pytest.mark.parametrize("how", ON_THE_WAY)
def test_the_first_operation_on_the_way_is_told(how):
    add, operation = ON_THE_WAY[how]

    def step(p, s, x):
        u, s = LOCAL.update(gradient(p, x), s, p)
        new = jax.tree.map(lambda p, u: add(p, u, lax.pmean(x, "data")), p, u)
        return new, s, ()

    text = said(step, *started(LOCAL))
    assert (f"(by `{operation}`)" in text) if operation else text == ""


def test_updates_of_reducers_may_be_changed():
    step = trains(REDUCED, after=lambda u: 0.5 * u)
    assert said(step, *started(REDUCED)) == ""


BEFORE = {
    "psum": lambda g: lax.psum(g, "data"),
    "pmean": lambda g: lax.pmean(g, "data"),
    "gathered": lambda g: jax.tree.map(lambda x: lax.all_gather(x, "data").mean(0), g),
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("name", ["all_reduce", "deep_gradient_compression"])
def test_gradients_that_meet_before_a_reducer_are_warned_of(name, before):
    tx = optax.chain(getattr(relaxjax, name)("data"), optax.sgd(0.1))
    params = {"w": jnp.ones((3, 2)), "b": jnp.ones(())}
    text = said(trains(tx, BEFORE[before]), *started(tx, params))
    assert f"{name} is given gradients that the step has brought together" in text
    assert "over ['data'] already" in text


def clipped_by_all(g: Any) -> Any:
    """Its norm meets, and it does not."""
    norm = lax.pmean(optax.tree.norm(g), "data")
    return jax.tree.map(lambda g: g / jnp.maximum(norm, 1), g)


def half(g: Any) -> Any:
    """As of a leaf that all workers compute from features that they gather."""
    return {**g, "b": lax.pmean(g["b"], "data")}


def chosen(g: Any) -> Any:
    """Each worker says whether the mean counts for it."""
    mean = lax.pmean(g, "data")
    return jax.tree.map(lambda m: jnp.where(g["b"] > 0, m, 0), mean)


@pytest.mark.parametrize(
    "before", [clipped_by_all, half, chosen, optax.tree.zeros_like]
)
def test_gradients_of_which_some_are_a_workers_own_may_be_reduced(before):
    assert said(trains(REDUCED, before), *started(REDUCED)) == ""


def test_gradients_may_meet_over_another_axis_before():
    hosts = emulate({"host": 2, "data": 2})
    tx = optax.chain(all_reduce("host"), optax.adam(0.1))
    step = trains(tx, lambda g: lax.pmean(g, "data"))
    assert said(step, *started(tx, mesh=hosts), mesh=hosts) == ""
    tx = optax.chain(all_reduce(("host", "data")), optax.adam(0.1))
    step = trains(tx, lambda g: lax.pmean(g, "data"))
    text = said(step, *started(tx, mesh=hosts), mesh=hosts)
    assert "brought together over ['data'] already" in text


def test_a_state_that_is_made_in_the_step_is_warned_of():
    def step(p, x):
        u, _ = LOCAL.update(gradient(p, x), LOCAL.init(p), p)
        return optax.apply_updates(p, u), ()

    text = said(step, started(LOCAL)[0])
    assert "the state of local_sgd is made in the step" in text


def test_so_is_one_of_which_only_a_number_goes_on():
    """Beside a count that stays: neither takes it to the next step."""

    def step(p, total, count, x):
        u, made = LOCAL.update(gradient(p, x), LOCAL.init(p), p)
        total = sum(jnp.sum(leaf) for leaf in jax.tree.leaves(made))
        return optax.apply_updates(p, u), lax.pmean(total, "data"), count, ()

    state = relaxjax.to_workers((PARAMS, jnp.zeros(()), jnp.zeros(())), emulate(4))
    assert "the state of local_sgd is made in the step" in said(step, *state)


def test_a_state_may_begin_in_a_later_phase():
    tx = relaxjax.post_local_sgd(optax.adam(0.1), "data", 2, 2)
    assert said(trains(tx), *relaxjax.init(tx, PARAMS, emulate(4)), steps=6) == ""


@pytest.mark.parametrize(
    "around",
    [
        lambda tx: relaxjax.skip_nonfinite(tx, "data"),
        lambda tx: relaxjax.participation(tx, "data", present=[[1, 1, 1, 0]]),
        lambda tx: optax.MultiSteps(tx, 2).gradient_transformation(),
    ],
)
def test_a_state_may_begin_where_a_step_is_left_out_or_chosen(around):
    late = relaxjax.from_step(relaxjax.local_sgd("data", 2), 2)
    first = relaxjax.before_step(relaxjax.all_reduce("data"), 2)
    for tx in (
        relaxjax.post_local_sgd(optax.adam(0.1), "data", 2, 2),
        optax.chain(first, optax.adam(0.1), late),
    ):
        tx = around(tx)
        assert said(trains(tx), *relaxjax.init(tx, PARAMS, emulate(4)), steps=6) == ""


def by_hand(keep: bool) -> Any:
    """A reducer and an optimizer without a chain."""

    def step(p, residual, s, x):
        g, new = FEEDBACK.update(gradient(p, x), residual, p)
        u, s = optax.adam(0.1).update(g, s, p)
        return optax.apply_updates(p, u), new if keep else residual, s, ()

    return step


def test_a_relaxations_state_that_stays_is_warned_of():
    state = relaxjax.to_workers(
        (PARAMS, FEEDBACK.init(PARAMS), optax.adam(0.1).init(PARAMS)), emulate(4)
    )
    assert said(by_hand(True), *state) == ""
    text = said(by_hand(False), *state)
    assert "the optimizer's state, its argument 1, and returns it as it was" in text

    def whole(p, both, x):
        p, residual, s, _ = by_hand(False)(p, *both, x)
        return p, (residual, s), ()

    text = said(whole, state[0], (state[1], state[2]))
    assert "its argument 1, and returns it as it was" in text


def test_a_count_that_stays_is_warned_of():
    """Models never come to the step in which they meet."""
    meet = local_sgd("data", 2)

    def step(p, s, count, x):
        u, s = optax.adam(0.1).update(gradient(p, x), s, p)
        u, _ = meet.update(u, count, p)
        return optax.apply_updates(p, u), s, count, ()

    state = (PARAMS, optax.adam(0.1).init(PARAMS), meet.init(PARAMS))
    text = said(step, *relaxjax.to_workers(state, emulate(4)))
    assert "the state of local_sgd is returned as it was" in text


def test_a_second_optimizers_state_that_stays_is_warned_of():
    def step(both, x):
        g = gradient({"w": both["w"], "b": both["b"]}, x)
        u, first = REDUCED.update(g["w"], both["first"], both["w"])
        v, _ = REDUCED.update(g["b"], both["second"], both["b"])
        new = {"w": both["w"] + u, "b": both["b"] + v}
        return {**both, **new, "first": first}, ()

    w, first = started(REDUCED, PARAMS["w"])
    b, second = started(REDUCED, jnp.ones(1))
    text = said(step, {"w": w, "b": b, "first": first, "second": second})
    assert "its argument 0, and returns it as it was" in text


def test_an_update_may_be_looked_at_before_it_is_taken():
    """As in a search for a rate: the state of the first try is dropped."""

    def step(p, s, x):
        tried, _ = REDUCED.update(gradient(p, x), s, p)
        there = optax.apply_updates(p, tried)
        u, s = REDUCED.update(gradient(there, x), s, p)
        return optax.apply_updates(p, u), s, ()

    assert said(step, *started(REDUCED)) == ""


def test_an_update_may_be_measured_in_a_step_of_its_own():
    tx: Any = optax.chain(FEEDBACK, optax.adam(0.1))

    def probe(p, s, x):
        u, _ = tx.update(gradient(p, x), s, p)
        return p, s, {"norm": optax.tree.norm(u)}

    assert said(probe, *started(tx)) == ""


def test_a_count_of_another_optimizer_may_be_read():
    """As of a schedule that goes on in a step of its own."""

    def step(p, s, kept, x):
        u, s = REDUCED.update(gradient(p, x), s, p)
        return optax.apply_updates(p, u), s, kept, {"rate": 0.1 / (1.0 + kept.count)}

    kept = optax.scale_by_schedule(lambda count: 0.1 / (1 + count)).init(PARAMS)
    kept = relaxjax.to_workers(kept, emulate(4))
    assert said(step, *started(REDUCED), kept) == ""


def test_samples_in_an_argument_of_their_own_may_part():
    """Each worker moves its own by the model, and trains the model by them."""

    def energy(p: Any, x: Any) -> Any:
        return ((x @ p["w"] + p["b"]) ** 2).mean()

    def step(p, s, samples, x):
        samples = samples - 0.1 * jax.grad(energy, argnums=1)(p, samples)
        g = jax.grad(lambda p: energy(p, x) - energy(p, samples))(p)
        u, s = REDUCED.update(g, s, p)
        return optax.apply_updates(p, u), s, samples + 0.01 * x[0], ()

    samples = relaxjax.to_workers(jnp.ones((2, 3)), emulate(4))
    assert said(step, *started(REDUCED), samples) == ""


def test_params_that_stay_are_warned_of():
    def step(p, s, x):
        _, s = REDUCED.update(gradient(p, x), s, p)
        return p, s, ()

    text = said(step, *started(REDUCED))
    assert "the params come out of the step as they went in" in text


def test_updates_may_be_kept_in_place_of_being_taken():
    def step(p, s, kept, x):
        kept, s = REDUCED.update(gradient(p, x), s, p)
        return p, s, kept, ()

    params, state = started(REDUCED)
    assert said(step, params, state, params) == ""

    def counted(p, s, count, x):
        return p, REDUCED.update(gradient(p, x), s, p)[1], count + 1, ()

    text = said(counted, params, state, relaxjax.to_workers(0, emulate(4)))
    assert "the params come out of the step as they went in" in text


def test_a_reducer_alone_measures_and_may_leave_the_params():
    def step(p, s, x):
        g, s = FEEDBACK.update(gradient(p, x), s)
        return p, s, {"norm": optax.tree.norm(g)}

    assert said(step, *started(FEEDBACK)) == ""


def two(first: Any, second: Any) -> Any:
    """Two models, each with its optimizer, in one loss."""

    def step(w, b, s, t, x):
        g = gradient({"w": w, "b": b}, x)
        u, s = first.update(g["w"], s, w)
        v, t = second.update(g["b"], t, b)
        return w + u, b + v, s, t, ()

    def state() -> Any:
        w, s = started(first, jnp.ones(3))
        b, t = started(second, jnp.ones(1))
        return w, b, s, t

    return step, state()


def test_a_second_optimizer_without_a_reducer_is_warned_of():
    step, state = two(REDUCED, optax.adam(0.1))
    text = said(step, *state)
    assert "params 'argument 1' depend on each worker's own batch over ['data']" in text
    assert "Put relaxjax.all_reduce('data') before the optimizer" in text
    step, state = two(REDUCED, REDUCED)
    assert said(step, *state) == ""


def test_a_second_model_without_a_reducer_is_warned_of():
    """Its momenta tell that it is trained: the other's gradients know nothing of it."""
    other = optax.adam(0.1)

    def step(w, b, s, t, x):
        u, s = REDUCED.update(jax.grad(lambda w: ((x @ w) ** 2).mean())(w), s, w)
        g = jax.grad(lambda b: ((x.sum(-1) - b) ** 2).mean())(b)
        v, t = other.update(g, t, b)
        return w + u, b + v, s, t, ()

    state = two(REDUCED, other)[1]
    assert "params 'argument 1' depend" in said(step, *state)


def test_what_a_worker_adds_up_before_the_params_may_part():
    """Squares of gradients, in a tree to which momenta are alike."""

    def step(squares, p, s, x):
        g = gradient(p, x)
        u, s = REDUCED.update(g, s, p)
        squares = jax.tree.map(lambda q, g: q + g**2, squares, g)
        return squares, optax.apply_updates(p, u), s, ()

    params, state = started(REDUCED)
    assert said(step, params, params, state) == ""


@pytest.mark.parametrize("optimizer", [optax.sgd(0.1), optax.adam(0.1)])
def test_leaves_that_a_mask_keeps_from_the_reducer_are_warned_of(optimizer):
    tx = optax.chain(
        optax.masked(all_reduce("data"), {"w": True, "b": False}), optimizer
    )
    text = said(trains(tx), *started(tx))
    assert "params 'b' depend on each worker's own batch over ['data']" in text


class Trained(NamedTuple):
    """A whole training, as flax's TrainState, and what it measures."""

    params: Any
    total: Any
    average: Any
    running: Any
    state: Any


IN_A_LOOP = {
    "reduced": (REDUCED, {}, ""),
    "local": (LOCAL, {}, ""),
    "phases": (relaxjax.post_local_sgd(optax.adam(0.1), "data", 2, 2), {}, ""),
    "summed before": (REDUCED, {"before": BEFORE["psum"]}, "brought together over"),
    "subtracted": (LOCAL, {"add": minus}, "changes the updates of local_sgd"),
}


@pytest.mark.parametrize("how", IN_A_LOOP)
def test_steps_in_a_program_of_ones_own_are_followed(how):
    tx, does, expected = IN_A_LOOP[how]
    step = relaxjax.data_parallel(trains(tx, **does), emulate(4))

    @jax.jit
    def looped(*now: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, now: tuple(step(*now, BATCH)[:2]), now)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        looped(*started(tx))
    text = "".join(str(w.message) for w in caught)
    assert (expected in text) if expected else text == ""


def test_what_a_training_measures_beside_its_params_may_part():
    def step(now, x):
        p = now.params
        u, s = REDUCED.update(gradient(p, x), now.state, p)
        p = optax.apply_updates(p, u)
        average = jax.tree.map(lambda a, p: a + 0.1 * (p - a), now.average, p)
        running = now.running + 0.1 * (x.mean(0) - now.running)
        return Trained(p, now.total + loss_of(p, x), average, running, s), ()

    params, state = started(REDUCED)
    total, running = relaxjax.to_workers((jnp.zeros(()), jnp.zeros(3)), emulate(4))
    now = Trained(params, total, params, running, state)
    assert said(step, now) == ""


def apart(p: Any, u: Any) -> Any:
    """A rate of one's own, by the place among the workers."""
    rate = 1 + 0.1 * lax.axis_index("data")
    return jax.tree.map(lambda p, u: p + rate * u, p, u)


def test_of_batch_and_index_the_batch_is_told():
    def both(p: Any, u: Any) -> Any:
        return {**apart(p, u), "b": p["b"] + u["b"] * lax.axis_index("data")}

    def step(p, s, x):
        u, s = REDUCED.update(gradient(p, x), s, p)
        new = both(p, u)
        return {**new, "b": new["b"] + x.sum()}, s, ()

    assert "params 'b' depend on each worker's own batch" in said(
        step, *started(REDUCED)
    )


def test_params_that_depend_on_a_workers_index_are_warned_of():
    text = said(trains(REDUCED, add=apart), *started(REDUCED))
    assert "depend on each worker's own index over ['data']" in text
    noisy = trains(REDUCED, lambda g: jax.tree.map(lambda g: g * own_noise(), g))
    assert said(noisy, *started(REDUCED)) == ""


def own_noise() -> Any:
    key = relaxjax.worker_key(jax.random.key(0), "data")
    return jax.random.normal(key, ())


@pytest.mark.parametrize("place", [emulate(4), jax.make_mesh((4,), ("data",))])
def test_keys_of_two_numbers_are_keys(place):
    def step(p, s, key, x):
        key, sub = jax.random.split(key)
        u, s = REDUCED.update(gradient(p, x), s, p)
        noise = jax.random.normal(sub, ())
        return jax.tree.map(lambda p, u: p + u + noise, p, u), s, key, ()

    state = started(REDUCED, mesh=place)
    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    own = jax.device_put(keys, jax.tree.leaves(state)[0].sharding)
    text = said(step, *state, own, mesh=place)
    assert "each worker has its own key '2', and its numbers reach the params" in text
    same = relaxjax.to_workers(jax.random.PRNGKey(0), place)
    assert said(step, *state, same, mesh=place) == ""


def test_models_that_are_averaged_by_hand_every_few_steps_meet():
    hosts = emulate({"host": 2, "data": 2})
    tx = optax.chain(all_reduce("data"), optax.adam(0.1))

    def step(p, s, n, x):
        u, s = tx.update(gradient(p, x), s, p)
        p = optax.apply_updates(p, u)
        p = lax.cond(n % 2 == 1, lambda p: lax.pmean(p, "host"), lambda p: p, p)
        return p, s, n + 1, ()

    n = relaxjax.to_workers(0, hosts)
    assert said(step, *started(tx, mesh=hosts), n, mesh=hosts) == ""

    def other(p, s, n, x):
        u, s = tx.update(gradient(p, x), s, p)
        p = optax.apply_updates(p, u)
        p = lax.cond(n % 2 == 1, lambda p: lax.pmean(p, "data"), lambda p: p, p)
        return p, s, n + 1, ()

    text = said(other, *started(tx, mesh=hosts), n, mesh=hosts)
    assert "own batch over ['host']" in text


@pytest.mark.parametrize(
    "name",
    ["ring", "bidirectional_ring", "halving_doubling", "tree", "two_shot", "one_shot"],
)
def test_collectives_of_several_messages_bring_workers_together(name):
    sum_over = getattr(relaxjax.collectives, f"{name}_all_reduce")

    def step(p, s, x):
        g = jax.tree.map(lambda g: sum_over(g, "data") / 4, gradient(p, x))
        u, s = optax.adam(0.1).update(g, s, p)
        return optax.apply_updates(p, u), s, ()

    assert said(step, *started(optax.adam(0.1))) == ""
    mine = optax.stateless(
        lambda g, _: jax.tree.map(lambda g: sum_over(g, "data") / 4, g)
    )
    tx = optax.chain(mine, optax.adam(0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relaxjax.init(tx, PARAMS, emulate(4))


def test_a_step_that_tries_a_rate_keeps_params_and_state():
    def step(p, s, rate, x):
        u, _ = REDUCED.update(gradient(p, x), s, p)
        there = jax.tree.map(lambda p, u: p + rate * u, p, u)
        return p, s, 2 * rate, {"loss": loss_of(there, x)}

    assert said(step, *started(REDUCED), relaxjax.to_workers(0.1, emulate(4))) == ""


@pytest.mark.parametrize("gives", [True, False])
def test_a_buffer_like_the_params_may_stand_before_them(gives):
    """Of a jitted step, or an update without params, nobody knows which they are."""
    tx: Any = optax.chain(all_reduce("data"), optax.sgd(0.1, momentum=0.5))

    def step(buffer, p, s, x):
        buffer = jax.tree.map(lambda a, b: (a + b) / 2, buffer, gradient(p, x))
        u, s = tx.update(buffer, s, p) if gives else tx.update(buffer, s)
        return buffer, optax.apply_updates(p, u), s, ()

    params, state = started(tx)
    run = jax.jit(step) if gives else step
    assert said(run, optax.tree.zeros_like(params), params, state) == ""

    def mixed(buffer, p, s, x):
        g = gradient(p, x)
        buffer = {"w": (buffer["w"] + g["w"]) / 2, "b": buffer["b"] + g["b"]}
        u, s = tx.update(g, s, p) if gives else tx.update(g, s)
        return buffer, optax.apply_updates(p, u), s, ()

    run = jax.jit(mixed) if gives else mixed
    assert said(run, optax.tree.zeros_like(params), params, state) == ""

    def frozen(buffer, kept, p, s, x):
        now: Any = step(buffer, p, s, x)
        buffer, p, s, _ = now
        buffer = {**buffer, "b": kept["b"] + buffer["b"]}
        return buffer, kept, {**p, "b": p["b"] - buffer["b"]}, s, ()

    run = jax.jit(frozen) if gives else frozen
    text = said(run, optax.tree.zeros_like(params), params, params, state)
    assert "params 'b' depend on each worker's own batch" in text

    def wrong(buffer, p, s, x):
        buffer, new, s, _ = step(buffer, p, s, x)
        return buffer, jax.tree.map(lambda p, b: p - b, new, buffer), s, ()

    run = jax.jit(wrong) if gives else wrong
    text = said(run, optax.tree.zeros_like(params), params, state)
    assert "params 'b' depend on each worker's own batch" in text

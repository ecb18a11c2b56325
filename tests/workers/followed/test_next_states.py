"""A state that comes back as a gradient is used once in a loss, in every step."""

import functools
import linecache
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import all_reduce, compression, emulate, fsdp, reduce_in_backward

CODE = compression.error_feedback(compression.quantize(2))
START = np.zeros(8, np.float32)
DATA = np.random.default_rng(0).normal(size=(5, 4, 2, 8)).astype(np.float32)
REDUCER: Any = all_reduce("data", compressor=CODE)


def dot(w, x):
    return jnp.vdot(w, x)  # whose gradient is x


def mean_of(w, rows):
    return jnp.mean(jax.vmap(lambda x: dot(w, x))(rows))


def reduced(loss):
    """As `fsdp.gathered` has it: `loss(params, batch, state=)`."""
    return lambda p, x, state: loss(reduce_in_backward(p, REDUCER, state=state), x)


def once(of, p, s, rows):
    return of(mean_of)(p, rows, state=s)


def mapped(of, p, s, rows):
    return jnp.mean(jax.vmap(lambda x: of(dot)(p, x, state=s))(rows))


def twice(of, p, s, rows):
    return sum(of(dot)(p, x, state=s) for x in rows) / len(rows)


def scanned(of, p, s, rows):
    def turn(total, x):
        return total + of(dot)(p, x, state=s) / len(rows), None

    return jax.lax.scan(turn, 0.0, rows)[0]


def in_a_branch(of, p, s, rows):
    """Where the first number of all rows is negative, which they hardly are."""
    skip = jax.lax.pmean(rows[0, 0], "data") < -9
    return jax.lax.cond(skip, lambda: 0.0, lambda: once(of, p, s, rows))


def run(loss, room: str, how: Any = lambda after, owed, rows: after, **more: Any):
    """What is delivered and owed after five steps of descent at rate 1.

    `how(after, owed, rows)` is the state that the step returns; `around` wraps it.
    """
    mesh, tx = emulate(4), optax.sgd(1.0)
    code = more.get("code", CODE)
    of: Any = reduced
    if room == "fsdp":
        of = functools.partial(fsdp.gathered, axis_name="data", gradients=code)
        params, state = fsdp.init(tx, START, mesh)
        owed: Any = fsdp.init_state(of(dot), params, mesh)
    else:
        params, state = relaxjax.init(tx, START, mesh, reduced_in_step=True)
        owed = relaxjax.to_workers(REDUCER.init(START), mesh)

    def step(params, state, owed, rows):
        def value(p, s):
            return loss(of, p, s, rows[0])

        grads, after = jax.grad(value, argnums=(0, 1))(params, owed)
        after = how(after, owed, rows)
        updates, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        if "own" in more:
            params = jax.tree.map(lambda p: p + rows.mean(), params)
        return params, state, after, ()

    stepped = relaxjax.data_parallel(more.get("around", lambda step: step)(step), mesh)
    for rows in DATA:
        params, state, owed, _ = stepped(params, state, owed, rows)
    whole = fsdp.whole(params) if room == "fsdp" else relaxjax.consensus(params)
    left = [x for x in jax.tree.leaves(owed) if x.shape == (4, 8)]
    return np.asarray(left[0]).mean(0) - np.asarray(whole)


def fine(rows):
    return jax.lax.pmean(rows.sum(), "data") < 1e9


def left_out(after, owed, rows):
    """By hand, if a step is not fine."""
    return jax.lax.cond(fine(rows), lambda: after, lambda: owed)


def chosen(after, owed, rows):
    return jax.tree.map(lambda x, y: jnp.where(fine(rows), x, y), after, owed)


def decayed(after, owed, rows):
    half = jax.lax.cond(
        fine(rows), lambda: owed, lambda: jax.tree.map(lambda x: x / 2, owed)
    )
    return jax.tree.map(lambda x, y: jnp.where(fine(rows), x, y), after, half)


def averaged(after, owed, rows):
    """By hand, as an average of residuals would be, here of the new one alone."""
    del rows
    return jax.tree.map(lambda x, y: 1.0 * x + 0.0 * y, after, owed)


def looped(after, owed, rows):
    del owed, rows
    return jax.lax.fori_loop(0, 2, lambda _, x: x, after)


ROOMS = pytest.mark.parametrize("room", ["fsdp", "backward"])


@pytest.mark.few(12)
@ROOMS
@pytest.mark.parametrize("around", [lambda step: step, jax.jit], ids=["plain", "jit"])
@pytest.mark.parametrize(
    "how",
    [lambda x, *_: x, left_out, chosen, decayed, averaged, looped],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("loss", [once, mapped])
def test_what_is_delivered_and_owed_is_all_there_was(loss, how, around, room):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = run(loss, room, how, around=around)
    np.testing.assert_allclose(found, DATA.mean((1, 2)).sum(0), atol=1e-5)


@ROOMS
def test_two_uses_are_refused(room):
    with pytest.raises(ValueError, match="is used twice in one loss"):
        run(twice, room)


@pytest.mark.parametrize("in_one", [False, True])
def test_what_was_last_known_may_be_read_by_each_microbatch(in_one):
    """And be renewed by the last, as it is only read before."""
    code, mesh, tx = compression.quantize(8), emulate(4), optax.sgd(0.1)
    loss = fsdp.gathered(
        lambda w, x: jnp.sum((w - x) ** 2), "data", weights=code, difference=True
    )
    params, state = fsdp.init(tx, START, mesh)
    known = fsdp.init_state(loss, params, mesh)

    def step(params, state, known, rows):
        (x, y), both = rows[0], jax.grad(loss, argnums=0)
        if in_one:
            grads = jax.grad(
                lambda p, k: loss(p, x, state=k) + loss(p, y, state=k), argnums=(0, 1)
            )
            grads, known = grads(params, known)
        else:
            ahead = [both(params, z, state=known) for z in (x, y)]
            last = jax.grad(lambda p, k: loss(p, y, state=k), argnums=(0, 1))
            grads, known = last(params, known)
            grads = jax.tree.map(lambda *g: sum(g), grads, *ahead)
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state, known, ()

    run = relaxjax.data_parallel(step, mesh)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if in_one:
            with pytest.raises(ValueError, match="is used twice in one loss"):
                run(params, state, known, DATA[0])
        else:
            run(params, state, known, DATA[0])


@ROOMS
@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (scanned, "is a sum: its state= is used"),
        (in_a_branch, "is zeros where a branch"),
    ],
)
@pytest.mark.parametrize("how", [lambda x, *_: x, chosen], ids=["as it is", "chosen"])
def test_uses_in_a_loop_or_a_branch_are_warned_of(loss, said, how, room):
    """Of one thing, at the line of the step."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(loss, room, how, own=True)
    texts = [str(x.message) for x in caught]
    assert [said in text for text in texts] == [True]
    assert "map the microbatches inside of the loss" in texts[0]
    line = linecache.getline(caught[0].filename, caught[0].lineno)
    assert "stepped(params, state, owed, rows)" in line


@pytest.mark.parametrize(
    "how", [left_out, lambda x, *_: x], ids=["left out", "as it is"]
)
def test_of_several_leaves_the_first_is_told(how):
    """Random codes with feedback keep two."""
    code = compression.error_feedback(compression.quantize(2, stochastic_rounding=True))
    with pytest.warns(UserWarning, match="'owed/0/residual' is a sum") as caught:
        run(scanned, "fsdp", how, code=code)
    assert len(caught) == 1

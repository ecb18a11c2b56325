"""Steps in which nothing is due: the same bits, by a program that does not ask."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import accumulate, all_reduce, compression, emulate, topology
from relaxjax.workers import _step_programs
from tests import helpers
from tests.helpers import mesh_of

N, STEPS = 4, 14
CODED = compression.error_feedback(compression.quantize(8))
SGD = optax.sgd(0.05)


def diloco(every: int, **how: Any) -> Any:
    return relaxjax.diloco(optax.adam(0.01), "data", every, **how)


def gossip(every: int) -> Any:
    return relaxjax.gossip("data", topology.ring(N), every=every)


ROWS: dict[str, tuple[Any, int]] = {  # and how many of 14 steps are silent
    # 0: unknown; 1, 2, 3 silent; 4: due; 5: asked anew, and so on.
    "diloco": (diloco(5), 9),
    "diloco, 2": (diloco(2), 0),
    "diloco, 1": (diloco(1), 0),
    "diloco in 8 bits": (diloco(5, compressor=CODED), 9),
    "local_sgd": (optax.chain(SGD, relaxjax.local_sgd("data", 7)), 10),
    "accumulate": (accumulate(optax.chain(all_reduce("data"), SGD), 4), 7),
    "gossip": (optax.chain(SGD, gossip(4)), 7),
    "desynced": (
        relaxjax.desynced(
            optax.adam(0.01), "data", periods={"params": 4, "mu": 8, "nu": 12}
        ),
        7,
    ),
    # Two counters: each step is counted as two, as it might be.
    "two": (optax.chain(SGD, gossip(5), relaxjax.local_sgd("data", 5)), 3),
    # A phase that begins at step 3, where six more steps were to be silent.
    "a shorter period": (
        optax.chain(
            SGD,
            relaxjax.by_step(
                {0: relaxjax.local_sgd("data", 9), 3: relaxjax.local_sgd("data", 3)}
            ),
        ),
        5,
    ),
    "a method that begins": (
        optax.chain(
            SGD, gossip(9), relaxjax.from_step(relaxjax.local_sgd("data", 3), 3)
        ),
        2,
    ),
    "one of two due each step": (optax.chain(SGD, gossip(1), gossip(4)), 7),
}
places = pytest.mark.parametrize("place", [mesh_of, emulate])


def trained(
    train_step: Any,
    tx: Any,
    mesh: Any,
    *,
    asked: bool,
    between: Any = None,
    bad: tuple[int, ...] = (),
) -> tuple[list[bytes], int]:
    """Bits after each step, and the number of steps by the silent program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_step_programs, "host_is_asked", lambda workers: asked)
        step = relaxjax.data_parallel(train_step, mesh)
    programs: Any = step._programs
    taken: list[int] = []
    silent = programs.silent
    programs.silent = lambda *args: taken.append(1) or silent(*args)
    state = relaxjax.init(tx, helpers.problem(), mesh)
    found = []
    for number, batch in enumerate(helpers.batches(STEPS, rows=8)):
        if between is not None:
            state = between(number, state)
        *state, _ = step(*state, batch | {"bad": np.full(8, number in bad)})
        leaves = jax.tree.leaves(state)
        found.append(b"".join(np.asarray(x).tobytes() for x in leaves))
    return found, len(taken)


@pytest.mark.few(20)
@places
@pytest.mark.parametrize("name", ROWS)
def test_the_bits_are_those_of_a_program_that_asks(name, place):
    tx, silent = ROWS[name]
    mesh, step = place(N), helpers.train_step_of(tx)
    expected, none = trained(step, tx, mesh, asked=False)
    found, many = trained(step, tx, mesh, asked=True)
    assert found == expected
    assert (none, many) == (0, silent)


def test_a_state_that_was_not_returned_is_asked():
    """Restored from a checkpoint, say: its counters may be anywhere."""
    tx = diloco(5)

    def between(number: int, state: Any) -> Any:
        if number != 7:
            return state
        params, opt_state = state
        outer = opt_state[1]
        late = outer._replace(step=jnp.full_like(outer.step, 4))  # due now
        return params, (opt_state[0], late)

    mesh, step = mesh_of(N), helpers.train_step_of(tx)
    expected, _ = trained(step, tx, mesh, asked=False, between=between)
    found, many = trained(step, tx, mesh, asked=True, between=between)
    assert found == expected
    assert many == 7  # 1, 2, 3; 6; 9, 10, 11


@pytest.mark.few(4)
@pytest.mark.parametrize("bad", [(4,), (2, 3), (0, 4, 5, 9)])
def test_steps_that_are_rejected_do_not_count(bad):
    """Their state stays as it was, after an exchange as well."""
    tx = diloco(5)

    def rejecting(params, opt_state, batch):
        *new, metrics = helpers.train_step_of(tx)(params, opt_state, batch)
        bad = jax.lax.pmax(batch["bad"][0].astype(int), "data") > 0
        kept = optax.tree.where(bad, (params, opt_state), tuple(new))
        return *kept, metrics

    expected, _ = trained(rejecting, tx, mesh_of(N), asked=False, bad=bad)
    found, many = trained(rejecting, tx, mesh_of(N), asked=True, bad=bad)
    assert found == expected
    assert many


def test_an_update_in_a_jit_of_its_own_is_asked_in_each_step():
    tx = diloco(5)

    def step_of() -> Any:
        update = jax.jit(diloco(5).update)  # nothing of it was traced before

        def step(params, opt_state, batch):
            grads = jax.grad(helpers.loss_fn)(params, batch)
            updates, opt_state = update(grads, opt_state, params)
            return optax.apply_updates(params, updates), opt_state, {}

        return step

    expected, _ = trained(step_of(), tx, mesh_of(N), asked=False)
    found, many = trained(step_of(), tx, mesh_of(N), asked=True)
    assert found == expected
    assert many == 0


def test_a_silent_program_has_no_loop_and_sends_nothing(monkeypatch):
    monkeypatch.setattr(_step_programs, "host_is_asked", lambda workers: True)
    tx, mesh = diloco(5), mesh_of(N)
    step = relaxjax.data_parallel(helpers.train_step_of(tx), mesh)
    state = tuple(relaxjax.init(tx, helpers.problem(), mesh))
    batch = helpers.batches(1, rows=8)[0]
    asks, silent = (
        str(program.lower(state, batch).compile().as_text())
        for program in (step._programs.whole, step._programs.silent)
    )
    assert " while(" in asks
    assert "all-reduce" in asks
    assert " while(" not in silent
    assert "all-reduce" not in silent

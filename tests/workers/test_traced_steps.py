"""A `data_parallel` step inside a function that is jitted or scanned by the user."""

from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax._core._phases import clocks_of
from tests import helpers
from tests.helpers import assert_close, mesh_of

WORKERS, STEPS, END = 4, 4, 2  # a phase ends amid the steps
SGD = optax.sgd(0.1)
TX = {
    "all_reduce": optax.chain(relaxjax.all_reduce("data"), SGD),
    "power_sgd": optax.chain(
        relaxjax.power_sgd("data", rank=1, start_after=END, min_compression=0), SGD
    ),
    "one_bit_adam": relaxjax.one_bit_adam("data", 0.01, freeze_step=END),
    "post_local_sgd": relaxjax.post_local_sgd(SGD, "data", 2, END),
    "local_sgd": optax.chain(SGD, relaxjax.local_sgd("data", 3)),
}
MESHES = {"mesh": mesh_of, "emulated": relaxjax.emulate}


def stacked():
    batches = helpers.batches(STEPS, rows=3 * WORKERS)
    return jax.tree.map(lambda *x: np.stack(x), *batches)


def scanned(step, now, batches):
    """All steps in one program."""
    return jax.lax.scan(lambda now, b: (step(*now, b)[:2], None), now, batches)[0]


def jitted(step, now, batches):
    """Each step as a part of a larger jitted function."""
    one = jax.jit(lambda now, b: step(*now, b)[:2])
    for i in range(STEPS):
        now = one(now, jax.tree.map(lambda x, i=i: x[i], batches))
    return now


def after_some(step, now, batches):
    """A loop's state goes into a scan."""
    first = jax.tree.map(lambda x: x[0], batches)
    now = step(*now, first)[:2]
    rest = jax.tree.map(lambda x: x[1:], batches)
    return jax.jit(scanned, static_argnums=0)(step, now, rest)


def compiled(step, now, batches):
    """One program, compiled ahead of time, for all steps."""
    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), batches)
    program = step.lower(*now, first).compile()
    for i in range(STEPS):
        now = program(now, jax.tree.map(lambda x, i=i: x[i], batches))[0]
    return now


def compiled_after_some(step, now, batches):
    now = step(*now, jax.tree.map(lambda x: x[0], batches))[:2]
    rest = jax.tree.map(lambda x: np.roll(x, -1, 0), batches)
    program = step.lower(*now, jax.tree.map(lambda x: x[0], rest)).compile()
    for i in range(STEPS - 1):
        now = program(now, jax.tree.map(lambda x, i=i: x[i], rest))[0]
    return now


def of_each_phase(step, now, batches):
    """A program for each phase, where the host sets phases."""
    programs = {}
    for i in range(STEPS):
        now = relaxjax.advance_phases(now)
        batch = jax.tree.map(lambda x, i=i: x[i], batches)
        kind = jax.tree.structure(now)
        program = programs.get(kind) or step.lower(*now, batch).compile()
        programs[kind] = program
        now = program(now, batch)[0]
    assert (len(programs) > 1) == any(clock.ends for clock in clocks_of(now))
    return now


def looped(step, now, batches):
    for i in range(STEPS):
        now = step(*now, jax.tree.map(lambda x, i=i: x[i], batches))[:2]
    return now


def several_in_one(tx, mesh, loop):
    """Two updates in each step, by a Python loop or by a scan over microbatches."""
    one = helpers.train_step_of(tx)

    def step(p, s, batch):
        if loop == "scan":
            (p, s), _ = jax.lax.scan(
                lambda now, b: (one(*now, b)[:2], ()), (p, s), batch
            )
            return p, s, {}
        for i in range(2):
            p, s, _ = one(p, s, jax.tree.map(lambda x, i=i: x[i], batch))
        return p, s, {}

    now = relaxjax.init(tx, helpers.problem(), mesh)
    over = relaxjax.data_parallel(step, mesh)
    for i in range(0, STEPS, 2):
        pair = jax.tree.map(
            lambda x, i=i: np.swapaxes(
                x[i : i + 2].reshape(2, WORKERS, -1, *x.shape[2:]), 0, 1
            ).reshape(2 * WORKERS, -1, *x.shape[2:]),
            stacked(),
        )
        now = over(*now, pair)[:2]
    return now[0]


@pytest.mark.few(4)
@pytest.mark.parametrize("loop", ["scan", "one by one"])
@pytest.mark.parametrize("name", ["one_bit_adam", "post_local_sgd"])
def test_two_updates_in_a_step_end_a_phase_in_time(name, loop):
    mesh = relaxjax.emulate(WORKERS)
    step = relaxjax.data_parallel(helpers.train_step_of(TX[name]), mesh)
    now = relaxjax.init(TX[name], helpers.problem(), mesh)
    assert_close(
        several_in_one(TX[name], mesh, loop), looped(step, now, stacked())[0], 1e-6
    )


def test_threads_share_a_step():
    """Each has its own state, as in a sweep; phases are told by the state's counts."""
    mesh, tx = relaxjax.emulate(WORKERS), TX["one_bit_adam"]
    step = relaxjax.data_parallel(helpers.train_step_of(tx), mesh)

    def run(_):
        return looped(step, relaxjax.init(tx, helpers.problem(), mesh), stacked())[0]

    with ThreadPoolExecutor(3) as pool:
        together = [*pool.map(run, range(6))]  # the first ones compile
    for params in together:
        assert_close(params, run(0), 1e-6)


WAYS = [scanned, jitted, after_some, compiled, compiled_after_some, of_each_phase]


@pytest.mark.long
@pytest.mark.few(6)
@pytest.mark.parametrize("place", MESHES)
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("name", TX)
def test_equals_a_loop_of_steps(name, how, place):
    tx, mesh = TX[name], MESHES[place](WORKERS)

    def run(through):
        step = relaxjax.data_parallel(helpers.train_step_of(tx), mesh)
        now = relaxjax.init(tx, helpers.problem(), mesh)
        return through(step, now, stacked())[0]

    assert_close(run(how), run(looped), 1e-6)

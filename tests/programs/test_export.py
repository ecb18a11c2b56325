"""A step that `jax.export` has written and read again takes the same step."""

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest
from jax import export

import relaxjax
from relaxjax.programs import register_for_export
from tests import helpers

WORKERS = 4
ADAM = optax.adam(0.1)
TX = {
    "all_reduce": optax.chain(relaxjax.all_reduce("data"), ADAM),
    "power_sgd, later": optax.chain(
        relaxjax.power_sgd("data", rank=1, start_after=2, min_compression=0), ADAM
    ),
    "acp_sgd": optax.chain(relaxjax.acp_sgd("data", rank=1, min_compression=0), ADAM),
    "diloco": relaxjax.diloco(ADAM, "data", 2),
    "partition": optax.partition(
        {"a": optax.chain(relaxjax.all_reduce("data"), ADAM), "b": ADAM},
        lambda tree: jax.tree.map(lambda x: "a" if x.ndim else "b", tree),
    ),
}
READS = """
import sys
import jax
from jax import export
import numpy as np
from relaxjax.programs import register_for_export
from tests import helpers
from tests.programs.test_export import TX, first

params, state = first(TX[sys.argv[1]])
register_for_export(state)
program = export.deserialize(bytearray(open(sys.argv[2], "rb").read()))
out, _ = program.call(params, state, params)
np.savez(sys.argv[3], *jax.tree.leaves(out))
"""


def first(tx):
    grads = jax.tree.map(
        lambda *x: np.stack(x), *[helpers.problem(s) for s in range(WORKERS)]
    )
    return grads, jax.vmap(tx.init, axis_name="data")(grads)


def step_of(tx):
    def one(params, state, grads):
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    return jax.jit(jax.vmap(one, axis_name="data"))


@pytest.mark.few(5)
@pytest.mark.parametrize("name", TX)
def test_a_program_that_was_written_and_read_takes_the_same_step(name):
    step = step_of(TX[name])
    params, state = first(TX[name])
    register_for_export(state)
    written = export.export(step)(params, state, params).serialize()
    read = export.deserialize(written)
    helpers.assert_equal(read.call(params, state, params), step(params, state, params))
    assert register_for_export(state) == []  # a second time there is nothing to do


def test_what_a_state_has_is_named():
    class Unseen(NamedTuple):
        """It is in no program yet."""

        mean: Any

    state = Unseen(np.zeros(2))
    (name,) = register_for_export((state, {"more": [state]}))
    assert name.endswith("test_what_a_state_has_is_named.<locals>.Unseen")


@pytest.mark.long
def test_another_process_reads_it(tmp_path: Path):
    name = "power_sgd, later"
    step, (params, state) = step_of(TX[name]), first(TX[name])
    register_for_export(state)
    program, out = tmp_path / "step.bin", tmp_path / "out.npz"
    program.write_bytes(export.export(step)(params, state, params).serialize())
    command = [sys.executable, "-c", READS, name, str(program), str(out)]
    subprocess.run(command, check=True, timeout=300)
    expected, _ = step(params, state, params)
    with np.load(out) as arrays:
        for x, y in zip(jax.tree.leaves(expected), arrays.values(), strict=True):
            np.testing.assert_array_equal(x, y)

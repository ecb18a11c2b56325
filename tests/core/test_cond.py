"""Choices by a condition: what runs, what comes out, and what its type says."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import varying
from relaxjax._core._cond import cond, select_tree, switch, when
from relaxjax.programs import parse
from tests.compiled_text import by_condition
from tests.helpers import mesh_of, optimized_hlo


def double(x, y):
    return 2 * x + y


def keep(x, y):
    return x - y


def test_a_bool_is_decided_at_once_and_an_array_when_it_runs():
    assert cond(True, double, keep, 3, 1) == 7
    assert cond(False, double, lambda x, y: y, 3, 1) == 1
    one = np.float32(1)
    run = jax.jit(lambda yes, x: cond(yes, double, keep, x, one))
    assert [run(yes, np.float32(3)) for yes in (True, False)] == [7, 2]


def test_one_of_several():
    choices = [double, keep, lambda x, y: y]
    one = np.float32(1)
    run = jax.jit(lambda i, x: switch(i, choices, x, one))
    assert [run(i, np.float32(3)) for i in range(3)] == [7, 2, 1]


@pytest.mark.parametrize("choose", [cond, None], ids=["cond", "switch"])
@pytest.mark.parametrize("mean_first", [True, False])
def test_what_varies_in_one_result_varies_in_both(choose, mean_first):
    def mean(x):
        return lax.pmean(x, "data")

    acts = [mean, lambda x: x][:: 1 if mean_first else -1]
    seen = []

    def body(x, number):
        y = cond(number > 0, *acts, x) if choose else switch(number, acts, x)
        seen.append(varying(y))
        return y

    mapped = jax.shard_map(
        body, mesh=mesh_of(2), in_specs=(P("data"), P()), out_specs=P("data")
    )
    jax.eval_shape(jax.jit(mapped), jnp.ones(2), jnp.int32(0))
    assert seen == [{"data"}]


def test_a_tree_is_selected_as_a_whole():
    now = {"a": jnp.ones((2, 3)), "n": jnp.int32(1), "key": jax.random.key(1)}
    before = {"a": jnp.zeros((2, 3)), "n": jnp.int32(0), "key": jax.random.key(0)}
    for yes, expected in ((True, now), (False, before)):
        out = select_tree(jnp.asarray(yes), now, before)
        assert out["n"] == expected["n"]
        assert (out["a"] == expected["a"]).all()
        assert out["key"] == expected["key"]


def added(x, y):
    return {"a": x["a"] + y, "b": x["b"]}


def test_what_acts_or_stays():
    x, y = {"a": np.float32(3), "b": np.float32(1)}, np.float32(4)
    assert when(True, added, x, y) == added(x, y)
    assert when(False, added, x, y) is x
    run = jax.jit(lambda due: when(due, added, x, y))
    assert run(True) == added(x, y)
    assert run(False) == x
    each = jax.vmap(lambda due, z: when(due, added, x | {"a": z}, y))
    out = each(np.array([True, False]), np.array([1, 2], np.float32))
    assert out["a"].tolist() == [5, 2]


def test_what_a_turn_makes_vary_is_typed_so_from_the_start():
    seen = []

    def body(due, x, y):
        out = when(due, lambda x, y: [x[0] + y, 2 * x[1]], x, y)
        seen.append([varying(leaf) for leaf in out])
        return out

    mapped = jax.shard_map(
        body,
        mesh=mesh_of(2),
        in_specs=(P(), P(), P("data")),
        out_specs=[P("data"), P()],
    )
    run = jax.jit(mapped)
    for due, expected in ((False, [[1, 1], 3]), (True, [[5, 6], 6])):
        out = run(jnp.bool_(due), [jnp.ones(1), jnp.float32(3)], jnp.array([4.0, 5]))
        assert [x.tolist() for x in out] == expected
    assert seen == [[{"data"}, set()]]


def test_a_loop_of_many_small_leaves_is_compiled_leaf_by_leaf():
    """XLA for CPUs makes one function of a small loop, which took it a minute here."""

    def compiled(loop: Any, *args: Any) -> str:
        lowered = jax.jit(jax.vmap(loop)).lower(*args)
        # What conftest.py takes out of all other programs.
        whole = lowered.compile(compiler_options={"xla_disable_hlo_passes": ""})
        return str(whole.as_text())

    def plain(due, x):
        return lax.while_loop(lambda c: c[0], lambda c: (~c[0], act(c[1])), (due, x))

    def act(x):
        return [jnp.tanh(leaf) + leaf.mean() for leaf in x]

    due, leaves = np.ones(4, bool), [np.ones((4, 8), np.float32)] * 9
    ours = compiled(lambda due, x: when(due, act, x), due, leaves)
    assert "small_call" not in ours
    if jax.__version_info__ >= (0, 12):
        assert "small_call" in compiled(plain, due, leaves)


@pytest.mark.parametrize("mapped", [False, True])
def test_nothing_runs_where_nobody_acts(mapped):
    ran = []

    def act(x):
        jax.debug.callback(lambda: ran.append(1))
        return x + 1

    def run(due, x):
        return when(due, act, x)

    run, no = (jax.vmap(run), np.zeros(3, bool)) if mapped else (run, np.bool_(False))
    for due, turns in ((no, 0), (~no, 1)):
        jax.block_until_ready(jax.jit(run)(due, np.zeros(no.shape)))
        jax.effects_barrier()
        assert len(ran) == turns


@pytest.mark.parametrize("checked", [True, False])
def test_a_silent_turn_sends_nothing_and_copies_nothing(checked):
    """Not even what depends on nothing that the turn changes."""

    def body(due, x, y):
        return when(due, lambda x, y: [x[0] + lax.psum(y, "data"), x[1]], x, y)

    mapped = jax.shard_map(
        body,
        mesh=mesh_of(2),
        in_specs=(P(), P("data"), P("data")),
        out_specs=P("data"),
        check_vma=checked,
    )
    big = jnp.ones(2**12)
    run = jax.jit(mapped, donate_argnums=1)
    text = optimized_hlo(run.lower(jnp.bool_(True), [big, big + 1], big))
    always, in_turns = by_condition(text)
    assert not always
    assert len(in_turns) == 1
    module = parse(text)
    moved = [i for body in module.computations.values() for i in body]
    assert not [i for i in moved if i.opcode == "copy" and "2048" in i.shape]
    for due, first in ((False, 1), (True, 3)):
        out = run(jnp.bool_(due), [jnp.ones(2**12), jnp.ones(2**12)], big)
        assert [float(x[0]) for x in out] == [first, 1]

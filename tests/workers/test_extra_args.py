"""Optimizers whose update needs a loss, a gradient or a function are looked at too.

What `init`, a plan, an explanation and a byte count say of a chain must not depend on
whether the chain's optimizer needs an argument that only the train step has.
"""

import re
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import all_reduce, emulate, local_sgd, parameter_server, topology
from relaxjax.checkpoint import Checkpoints, plan_of

MESH = emulate(4)
PARAMS = {"w": jnp.ones((6, 4)), "b": jnp.ones(4)}
HALF = optax.masked(all_reduce("data"), {"w": True, "b": False})
NEEDY: dict[str, Any] = {
    "reduce_on_plateau": lambda rate=0.1: optax.chain(
        optax.sgd(rate), optax.contrib.reduce_on_plateau(patience=2)
    ),
    "polyak_sgd": lambda rate=0.1: optax.polyak_sgd(rate),
    "momo": lambda rate=0.1: optax.contrib.momo(rate),
    "momo_adam": lambda rate=0.1: optax.contrib.momo_adam(rate),
    "lbfgs": lambda rate=0.1: optax.lbfgs(rate),
    "backtracking": lambda rate=0.1: optax.chain(
        optax.sgd(rate), optax.scale_by_backtracking_linesearch(10)
    ),
    "sophia": lambda rate=0.1: optax.contrib.sophia(rate),
    "opaque sam": lambda rate=0.1: optax.contrib.sam(
        optax.sgd(rate), optax.sgd(0.1), opaque_mode=True
    ),
}
WRONG: dict[str, Any] = {
    "no reducer": (lambda tx: tx, "nothing in this transformation synchronizes"),
    "one leaf not reduced": (lambda tx: optax.chain(HALF, tx), "updates of .'b'."),
    "models before an optimizer": (
        lambda tx: optax.chain(local_sgd("data", 4), tx),
        "local_sgd stands before",
    ),
    "two reducers": (
        lambda tx: optax.chain(all_reduce("data"), all_reduce("data"), tx),
        "has reduced over",
    ),
}
needy = pytest.mark.parametrize("make", NEEDY.values(), ids=NEEDY.keys())


def said(tx: Any, **how: Any) -> str:
    """What `init` refuses or warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            relaxjax.init(tx, PARAMS, MESH, **how)
        except ValueError as error:
            return str(error)
    return " ".join(str(warning.message) for warning in caught)


@pytest.mark.few(8)
@needy
@pytest.mark.parametrize(("wrong", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_chain_is_named_whatever_its_optimizer_needs(make, wrong, message):
    for tx in (wrong(optax.sgd(0.1)), wrong(make())):
        assert re.search(message, said(tx))


@needy
def test_a_right_chain_passes_and_is_explained_like_another(make):
    tx = optax.chain(all_reduce("data"), make())
    plain = optax.chain(all_reduce("data"), optax.sgd(0.1))
    assert said(tx) == ""
    found, expected = (relaxjax.explain(x, PARAMS, MESH) for x in (tx, plain))
    for field in ("relaxations", "period", "bytes_per_step", "sends", "problems"):
        assert getattr(found, field) == getattr(expected, field)
    assert relaxjax.wire_bytes(tx, PARAMS, MESH, steps=3) == relaxjax.wire_bytes(
        plain, PARAMS, MESH, steps=3
    )


@needy
def test_a_plan_tells_two_rates_apart(make):
    plans = [
        plan_of(optax.chain(all_reduce("data"), make(rate)), PARAMS, MESH)
        for rate in (0.1, 0.2, 0.1)
    ]
    assert plans[0] == plans[2]
    assert plans[0] != plans[1]


def by_table(rates: np.ndarray) -> Any:
    return lambda step: jnp.asarray(rates)[step % len(rates)]


RING = topology.ring(4).matrix()
TABLES: dict[str, Any] = {
    "op of a reducer before momo": [
        optax.chain(all_reduce("data", op=op), optax.contrib.momo(0.1))
        for op in ("mean", "sum")
    ],
    "weights of a topology": [
        optax.chain(
            optax.sgd(0.1),
            relaxjax.gossip(
                "data", topology.from_matrix(share * RING + (1 - share) * np.eye(4))
            ),
        )
        for share in (1.0, 0.9)
    ],
    "delays": [
        optax.chain(
            relaxjax.bounded_staleness("data", [delays]),
            all_reduce("data"),
            optax.sgd(0.1),
        )
        for delays in ([0, 1, 0, 1], [1, 0, 0, 1])
    ],
    "a table of rates": [
        optax.chain(all_reduce("data"), optax.sgd(by_table(np.asarray(t, np.float32))))
        for t in ([1, 2], [1, 3])
    ],
    "a rate that is an array": [
        optax.chain(all_reduce("data"), optax.sgd(rate))
        for rate in (jnp.float32(0.1), jnp.float32(0.2))
    ],
}


@pytest.mark.parametrize(("one", "other"), TABLES.values(), ids=TABLES.keys())
def test_a_plan_tells_apart_what_differs_in_an_array_alone(one, other):
    plans = [plan_of(tx, PARAMS, MESH) for tx in (one, other, one)]
    assert plans[0] == plans[2]
    assert plans[0] != plans[1]


def needing(name: str, rate: float) -> Any:
    """An optimizer without a state, which needs one argument."""

    def update(updates, state, params=None, **extra):
        return jax.tree.map(lambda u: -rate * extra[name] * u, updates), state

    return optax.chain(
        all_reduce("data"),
        optax.GradientTransformationExtraArgs(lambda params: (), update),
    )


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (needing("value", 0.1), needing("grad_norm", 0.1), "is of another run"),
        (needing("value", 0.1), optax.polyak_sgd(0.1), "is of another"),
        (needing("grad_norm", 0.1), needing("value", 0.1), "is of another run"),
        (needing("grad_norm", 0.1), needing("grad_norm", 0.2), "could not be traced"),
    ],
)
def test_a_checkpoint_of_an_update_that_needs_another_argument(
    one, other, said, tmp_path
):
    state = {"params": relaxjax.to_workers(PARAMS, MESH)}
    with Checkpoints(tmp_path, MESH, plan=plan_of(one, PARAMS, MESH)) as checkpoints:
        checkpoints.save(1, state)
    with (
        Checkpoints(tmp_path, MESH, plan=plan_of(other, PARAMS, MESH)) as checkpoints,
        pytest.raises((ValueError, UserWarning), match=said),
    ):
        checkpoints.restore(state)


def test_the_words_of_a_failure_are_no_part_of_a_plan():
    def update(updates, state, params=None, **extra):
        raise TypeError(f"give loss_fn, got {object()}")

    tx = optax.GradientTransformationExtraArgs(lambda params: (), update)
    assert plan_of(tx, PARAMS, MESH) == plan_of(tx, PARAMS, MESH)


def scaled_by(name: str) -> Any:
    """An optimizer of a user's own, which needs an argument of another name."""

    def update(updates, state, params=None, **extra):
        return jax.tree.map(lambda u: -extra[name] * u, updates), state

    def needing(updates, state, params=None, **extra):
        if name not in extra:
            raise TypeError(f"update() missing the argument {name!r}")
        return update(updates, state, params, **extra)

    return optax.GradientTransformationExtraArgs(lambda params: (), needing)


def test_what_nobody_can_guess_is_said_and_can_be_given():
    tx = optax.chain(HALF, scaled_by("temperature"))
    assert "could not be traced: TypeError" in said(tx)
    assert "extra_args={'name': jax.ShapeDtypeStruct" in said(tx)
    given: Any = {"extra_args": {"temperature": jax.ShapeDtypeStruct((), jnp.float32)}}
    assert "synchronizes the updates of ['b']" in said(tx, **given)
    problems = relaxjax.explain(tx, PARAMS, MESH, **given).problems
    assert "synchronizes the updates of ['b']" in problems[0]
    right = optax.chain(all_reduce("data"), scaled_by("temperature"))
    assert said(right, **given) == ""
    assert relaxjax.wire_bytes(right, PARAMS, MESH, **given) == 168
    unknown, known = plan_of(right, PARAMS, MESH), plan_of(right, PARAMS, MESH, **given)
    assert "could not be traced" in unknown.values()
    assert "could not be traced" not in known.values()


def test_a_function_of_the_users_own_is_given_as_it_is():
    def update(updates, state, params=None, **extra):
        slope = jax.grad(extra["penalty"])(params)
        return jax.tree.map(lambda u, s: -u - s, updates, slope), state

    tx = optax.chain(
        all_reduce("data"),
        optax.GradientTransformationExtraArgs(lambda params: (), update),
    )
    assert "could not be traced" in said(tx)
    given = {"penalty": lambda params: jnp.sum(params["w"] ** 2)}
    assert said(tx, extra_args=given) == ""


def test_a_server_refuses_an_optimizer_by_what_it_does_and_not_by_what_it_needs():
    refusal = said(parameter_server(optax.contrib.momo(0.1), "data"))
    assert "update of an element depends on others" in refusal


ASKS_AT_ITS_START: dict[str, Any] = {
    "init": lambda tx, **how: relaxjax.init(tx, PARAMS, MESH, **how),
    "wire_bytes": lambda tx, **how: relaxjax.wire_bytes(tx, PARAMS, MESH, **how),
    "wire_bytes of many": lambda tx, **how: relaxjax.wire_bytes(
        tx, PARAMS, MESH, steps=600, **how
    ),
    "explain": lambda tx, **how: relaxjax.explain(tx, PARAMS, MESH, **how),
}


@pytest.mark.parametrize("name", ASKS_AT_ITS_START)
def test_what_looks_into_its_optimizer_as_it_begins_is_given_them_too(name):
    """A server makes sure that its optimizer is elementwise."""
    tx = parameter_server(scaled_by("temperature"), "data")
    given = {"temperature": jax.ShapeDtypeStruct((), jnp.float32)}
    ASKS_AT_ITS_START[name](tx, extra_args=given)
    with pytest.raises(TypeError, match="missing the argument 'temperature'"):
        ASKS_AT_ITS_START[name](tx)
    other = parameter_server(optax.chain(all_sorted(), scaled_by("t")), "data")
    with pytest.raises(ValueError, match="depends on others"):
        ASKS_AT_ITS_START[name](other, extra_args={"t": jnp.ones(())})


def all_sorted() -> Any:
    """No element's own."""
    return optax.stateless(lambda u, _: jax.tree.map(jnp.sort, u))


def test_a_plan_holds_what_looks_into_its_optimizer():
    given = {"temperature": jax.ShapeDtypeStruct((), jnp.float32)}
    tx = parameter_server(scaled_by("temperature"), "data")
    plan = plan_of(tx, PARAMS, MESH, extra_args=given)
    assert "could not be traced" not in str(plan)


@pytest.mark.parametrize("init", [relaxjax.fsdp.init, relaxjax.ps.init])
def test_slices_train_by_an_optimizer_that_is_given_something(init):
    tx = scaled_by("temperature")
    shards, state = init(tx, PARAMS, MESH, extra_args={"temperature": jnp.ones(())})

    def step(shards, state, x):
        grads = jax.tree.map(jnp.ones_like, shards)
        updates, state = tx.update(grads, state, shards, temperature=x.sum())
        return optax.apply_updates(shards, updates), state, ()

    batch = np.full(len(MESH.axes) * MESH.axes[0][1], 0.25, np.float32)
    shards, *_ = relaxjax.data_parallel(step, MESH)(shards, state, batch)
    found = relaxjax.fsdp.whole(shards)
    for name, x in PARAMS.items():
        np.testing.assert_allclose(found[name], x - 0.25)

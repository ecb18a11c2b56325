"""Every transformation behind `optax.inject_hyperparams`, and with an empty part.

What may change from step to step is taken as a traced number; what decides the program
is refused by name, with the remedy: the remedy is followed here, and then the step must
be the plain one.
"""

import functools
import inspect
import operator
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import topology
from relaxjax.compression import quantize

WORKERS, STEPS = 4, 3
KNOWN = re.compile(
    r": (\w+) is a JAX array, as optax.inject_hyperparams makes of every number, and "
    r"must be a number that is known .* static_args=\('(\w+)', \.\.\.\)"
)
NEEDED = {
    "axis_name": "data",
    "tx": optax.sgd(0.1),
    "inner": optax.sgd(0.1),
    "optimizer": optax.sgd(0.1),
    "topology": topology.lazy(topology.ring(WORKERS)),
    "compressor": quantize(8),
    "axes": {2: "data"},
    "delays": [[0, 1, 0, 1]],
    "arrivals": [[-1], [0], [1]],
    "outer": optax.sgd(0.5),
    "sync_every": 2,
    "periods": {"params": 2},
    "every": 2,
    "steps": 1,
    "step": 1,
    "start_step": 1,
    "freeze_step": 2,
    "learning_rate": 0.1,
    "theta": 4.0,
    "transformations": {0: relaxjax.all_reduce("data")},
    "loss": 0.25,
    "present": 0.75,
}
OWN = {"relay_sum": {"topology": topology.chain(WORKERS)}}


def made_by(function: Any) -> bool:
    """Whether a public name is a function that makes a transformation."""
    if not callable(function) or inspect.isclass(function):
        return False
    return "GradientTransformation" in str(
        inspect.signature(function).return_annotation
    )


MAKERS = [n for n in relaxjax.__all__ if made_by(getattr(relaxjax, n))]
ALONE = {"local"}  # takes no numbers
MATRICES = {"dion", "dion2"}  # take no vectors


def maker(name: str) -> Any:
    """The function of this name; where it takes matrices alone, vectors apart."""
    method = getattr(relaxjax, name)
    if name not in MATRICES:
        return method

    @functools.wraps(method)
    def make(**how: Any) -> Any:
        rest = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1))
        return optax.partition({"m": method(**how), "w": rest}, {"m": "m", "w": "w"})

    return make


def arguments(name: str) -> dict[str, Any]:
    """What a maker needs, and its defaults."""
    parameters = inspect.signature(getattr(relaxjax, name)).parameters.values()
    needed = NEEDED | OWN.get(name, {})
    return {
        p.name: needed[p.name] if p.default is p.empty else p.default
        for p in parameters
    }


def trained(tx: Any) -> Any:
    """Updates of all workers, step by step."""
    rng = np.random.default_rng(0)
    grads = {
        "w": rng.normal(size=(STEPS, WORKERS, 3)).astype(np.float32),
        "m": rng.normal(size=(STEPS, WORKERS, 16, 12)).astype(np.float32),
    }
    params = jax.tree.map(lambda g: jnp.zeros(g.shape[1:]), grads)

    def steps(params: Any, grads: Any) -> Any:
        state, found = tx.init(params), []
        for step in range(STEPS):
            now = jax.tree.map(operator.itemgetter(step), grads)
            updates, state = tx.update(now, state, params)
            params = optax.apply_updates(params, updates)
            found.append(params)
        return found

    each = jax.vmap(steps, axis_name="data", in_axes=(0, 1))
    return jax.jit(each)(params, grads)


def refused(error: ValueError) -> str:
    """The argument that an error names, which its remedy names too."""
    match = KNOWN.search(str(error))
    assert match, error
    assert match[1] == match[2]
    return match[1]


def injected(name: str) -> tuple[Any, set[str]]:
    """A maker whose numbers are injected, but those that it refuses; and these."""
    given, static = arguments(name), set()
    while True:
        how = optax.inject_hyperparams(maker(name), tuple(static))
        try:
            jax.eval_shape(lambda how=how: trained(how(**given)))
            return how(**given), static
        except ValueError as error:
            static.add(refused(error))
            assert len(static) <= len(given)


def assert_equal(found: Any, expected: Any) -> None:
    """To rounding: another program may round otherwise."""
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


KNOBS = (
    "learning_rate outer_learning_rate slow_learning_rate momentum pull mixing clip "
    "decay strength consensus_step_size theta resolution b1 b2 eps weight_decay "
    "coefficient_decay factor_change seed eta"
)
"""Numbers that may change from step to step."""


@pytest.mark.parametrize("name", sorted(set(MAKERS) - ALONE))
def test_numbers_are_injected_or_refused_by_name(name):
    _, static = injected(name)
    assert static.isdisjoint(KNOBS.split())


@pytest.mark.long
@pytest.mark.few(5)
@pytest.mark.parametrize("name", sorted(set(MAKERS) - ALONE))
def test_injected_numbers_train_as_plain_ones(name):
    plain = maker(name)(**arguments(name))
    assert_equal(trained(injected(name)[0]), trained(plain))


@pytest.mark.few(5)
@pytest.mark.parametrize("name", sorted(MAKERS))
def test_a_part_of_a_partition_may_be_empty(name):
    """All leaves have the other label; the empty part must not fail, nor act."""
    tx = getattr(relaxjax, name)(**arguments(name))
    plain = optax.chain(relaxjax.all_reduce("data"), optax.sgd(0.1))
    both = optax.partition({"none": tx, "all": plain}, {"w": "all", "m": "all"})
    assert_equal(trained(both), trained(plain))


def test_a_schedule_moves_a_knob():
    schedule = optax.piecewise_constant_schedule(0.1, {1: 0.0})
    how = optax.inject_hyperparams(relaxjax.one_bit_adam, ("freeze_step",))
    first, *later = trained(
        how(**arguments("one_bit_adam") | {"learning_rate": schedule})
    )
    for params in later:
        assert_equal(params, first)

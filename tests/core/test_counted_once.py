"""A term of the params alone counts once for all devices, or is refused by name."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import counted_once


def mesh_of(shape: tuple[int, ...]) -> Any:
    kinds = (AxisType.Explicit,) * len(shape)
    names = ("data", "model")[: len(shape)]
    devices = jax.devices()[: int(np.prod(shape))]
    return jax.make_mesh(shape, names, kinds, devices=devices)


def start() -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"w1": (6, 4), "w2": (4, 2)}
    params = {k: rng.normal(size=s).astype(np.float32) for k, s in shapes.items()}
    return params, rng.normal(size=(8, 6)).astype(np.float32)


def of_examples(p: Any, x: Any) -> Any:
    hidden = jnp.tanh(x @ p["w1"])
    return jnp.mean((jnp.einsum("bi,ij->bj", hidden, p["w2"]) - 1) ** 2)


def decay(p: Any) -> Any:
    return 0.01 * jnp.sum(p["w1"] * p["w1"])


def loss(p: Any, x: Any) -> Any:
    return of_examples(p, x) + decay(p)


FORMS = {
    "the term": lambda p, x: of_examples(p, x) + counted_once(decay(p)),
    "before the rest": lambda p, x: counted_once(decay(p)) + of_examples(p, x),
    "the whole loss": lambda p, x: counted_once(loss(p, x)),
    "in two halves": lambda p, x: (
        of_examples(p, x)
        + 2 * counted_once(decay(p) * 0.25)
        + counted_once(decay(p) * 0.5)
    ),
}
REDUCER: Any = relaxjax.all_reduce("data")
UNSEEN = r"all_reduce: the gradient was not made in the jax\.jit program of the update"


def reduced(loss: Any, params: Any, x: Any) -> Any:
    gradient = jax.grad(loss)(relaxjax.unreduced(params, "data"), x)
    return REDUCER.update(gradient, REDUCER.init(params), params)[0]


def on(shape: tuple[int, ...], run: Any) -> Any:
    """What `run` makes of params and examples on the mesh, over what is right."""
    (params, x), mesh = start(), mesh_of(shape)
    right = jax.grad(loss)(params, x)
    specs = {"w1": P(), "w2": P(None, "model") if len(shape) > 1 else P()}
    with jax.set_mesh(mesh):
        placed = {
            k: jax.device_put(params[k], NamedSharding(mesh, specs[k])) for k in specs
        }
        found = run(placed, jax.device_put(x, P("data")))
    return {k: np.asarray(found[k]) / np.asarray(right[k]) for k in right}


@pytest.mark.long
@pytest.mark.few(8)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [2, 4])
def test_marked_terms_count_once(form, n):
    def run(p, x):
        return reduced(FORMS[form], p, x)

    each = [on((n,), jax.jit(run))]
    with pytest.warns(UserWarning, match=UNSEEN):
        each.append(on((n,), run))
    for ratio in [x for ratios in each for x in ratios.values()]:
        np.testing.assert_allclose(ratio, 1, rtol=1e-4)


def test_beside_params_that_another_axis_shards():
    def marked(p, x):
        def across(p):
            hidden = jnp.tanh(x @ p["w1"])
            y = jnp.einsum("bi,ij->bj", hidden, p["w2"], out_sharding=P("data"))
            return jnp.mean((y - 1) ** 2)

        return across(p) + counted_once(decay(p))

    for ratio in on((4, 2), jax.jit(lambda p, x: reduced(marked, p, x))).values():
        np.testing.assert_allclose(ratio, 1, rtol=1e-4)


def nested(params, x):
    """The gradient in a `jit` of its own, inside the step's."""
    gradient = jax.jit(jax.grad(loss))(relaxjax.unreduced(params, "data"), x)
    return REDUCER.update(gradient, REDUCER.init(params), params)[0]


@pytest.mark.parametrize("run", [lambda p, x: reduced(loss, p, x), nested])
@pytest.mark.parametrize("n", [2, 4])
def test_terms_that_all_devices_would_count_are_refused(run, n):
    with pytest.raises(
        ValueError, match=r"all_reduce: .* relaxjax.counted_once\(term\)"
    ):
        on((n,), jax.jit(run))


def test_what_is_right_is_not_refused():
    """A single device, no `jit`, and the other form that the error names."""

    def plain(p, x):
        return reduced(loss, p, x)

    def apart(p, x):
        def both(marked, params):
            return of_examples(marked, x) + decay(params)

        seen = relaxjax.unreduced(p, "data")
        g, rest = jax.grad(both, (0, 1))(seen, p)
        return optax.tree.add(REDUCER.update(g, REDUCER.init(p), p)[0], rest)

    for shape, run in (((1,), jax.jit(plain)), ((4,), jax.jit(apart))):
        for ratio in on(shape, run).values():
            np.testing.assert_allclose(ratio, 1, rtol=1e-4)
    with pytest.warns(UserWarning, match=UNSEEN):
        ratios = on((4,), plain)
    for ratio in ratios.values():
        np.testing.assert_allclose(ratio, 1, rtol=1e-4)


def in_one(gradient, update):
    return jax.jit(lambda p, x: update(gradient(p, x), p))


def in_two(gradient, update):
    return lambda p, x: jax.jit(update)(jax.jit(gradient)(p, x), p)


def within(gradient, update):
    return jax.jit(lambda p, x: jax.jit(update)(jax.jit(gradient)(p, x), p))


def beside(gradient, update):
    return lambda p, x: update(jax.jit(gradient)(p, x), p)


@pytest.mark.parametrize("together", [in_two, within, beside])
def test_a_gradient_of_another_program_is_warned_of(together):
    """That of log(1 + loss) + log(1 + decay) would be four times too large."""

    def update(g, p):
        return REDUCER.update(g, REDUCER.init(p), p)[0]

    def gradient(p, x):
        return jax.grad(loss)(relaxjax.unreduced(p, "data"), x)

    with pytest.warns(UserWarning, match=UNSEEN):
        on((4,), together(gradient, update))
    with pytest.raises(ValueError, match="a term of the params alone"):
        on((4,), in_one(gradient, update))


def test_elsewhere_it_is_the_identity():
    term = jnp.float32(3)
    assert counted_once(term) is term
    grads = jax.vmap(jax.grad(lambda w: counted_once(w * w)), axis_name="data")
    np.testing.assert_array_equal(grads(jnp.arange(3.0)), [0, 2, 4])

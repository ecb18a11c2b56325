"""Without a loss: values and gradients are those of jax.lax, to the bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from relaxjax import activations, compression
from relaxjax._core._axis import to_local
from tests.activations.cases import AXIS, CASES, MAPPINGS, inputs, ints, pulled

CODES = {
    "none": {},
    "identity": {"forward": compression.identity(), "backward": compression.identity()},
    "forward alone": {"forward": compression.identity()},
    "backward alone": {"backward": compression.identity()},
}
cases = pytest.mark.parametrize("name", CASES)


@pytest.mark.few(20)
@cases
@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("n", [2, 3, 4, 8, 1])
@pytest.mark.parametrize("codes", CODES)
def test_values_and_gradients_are_exact(name, mapping, n, codes):
    case = CASES[name]
    x, g = inputs(case, n)
    y, pulled = MAPPINGS[mapping](lambda x: case.ours(x, **CODES[codes]), case, x, g)
    np.testing.assert_array_equal(y, case.forward(x))
    np.testing.assert_array_equal(pulled.reshape(x.shape), case.backward(g))


def drawn(n, shape, equal, seed=0):
    """bfloat16 of many magnitudes, NaN payloads and infinities among them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, *shape)) * 10.0 ** rng.integers(-6, 6, (n, *shape))
    x[rng.random(x.shape) < 0.05] = np.inf
    return np.asarray(jnp.asarray(x[:1].repeat(n, 0) if equal else x, jnp.bfloat16))


@pytest.mark.few(9)
@cases
@pytest.mark.parametrize("codes", ["none", "forward alone", "backward alone"])
def test_what_is_not_encoded_is_the_collective_of_lax_to_the_bit(name, codes):
    case = CASES[name]
    x, g = inputs(case, 4, drawn)
    run = MAPPINGS["typed mesh"]
    ours = run(lambda x: case.ours(x, **CODES[codes]), case, x, g)
    theirs = run(case.lax, case, x, g)
    plain = [codes != "forward alone", codes != "backward alone"]
    for mine, other, same in zip(ours, theirs, plain, strict=True):
        assert mine.dtype == other.dtype
        if same:
            assert mine.tobytes() == other.tobytes()


@cases
def test_the_backward_leg_is_the_transpose(name):
    case = CASES[name]
    x, g = inputs(case, 4)
    codes = CODES["identity"]
    y, pulled = MAPPINGS["vmap"](lambda x: case.ours(x, **codes), case, x, g)
    if case.equal:  # of equal values one copy counts
        one = (x[:1], pulled[:1]) if case.equal == "in" else (x, pulled)
        other = (y[:1], g[:1]) if case.equal == "out" else (y, g)
        assert np.vdot(*other) == np.vdot(*one)
    else:
        assert np.vdot(y, g) == np.vdot(x, pulled)


@pytest.mark.few(20)
@cases
@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("codes", CODES)
def test_the_gradient_of_the_gradient_is_the_collective_again(name, mapping, codes):
    """As a gradient penalty and a Hessian product ask for it; JAX's `psum` adds n."""
    case, other = CASES[name], {"in": "out", "out": "in", "": ""}
    x, g = inputs(case, 4)

    def gradient(g):
        at = jnp.zeros(x.shape[1:])
        at = at if case.equal == "in" else to_local(at, AXIS)
        return jax.vjp(lambda x: case.ours(x, **CODES[codes]), at)[1](g)[0]

    turned = case._replace(equal=other[case.equal])
    back, again = MAPPINGS[mapping](gradient, turned, g, x)
    np.testing.assert_array_equal(back.reshape(x.shape), case.backward(g))
    np.testing.assert_array_equal(again.reshape(g.shape), case.forward(x))


def test_a_hessian_product_in_codes_is_near_the_plain_one():
    """Of a product that is cut by columns and by rows, with both ways in codes."""
    rng = np.random.default_rng(0)
    x, v = rng.normal(size=(2, 6, 32)).astype(np.float32)
    w, u = rng.normal(size=(2, 32, 32)).astype(np.float32) / 4
    cut = np.stack(np.split(w, 4, axis=1)), np.stack(np.split(u, 4))

    def plain(x):
        return jnp.sum(jnp.tanh(jnp.tanh(x @ w) @ u) ** 2)

    def split(x, w, u):
        codes = {"forward": compression.mx("e4m3"), "backward": compression.mx("e4m3")}
        inside = jnp.tanh(activations.copy(x, AXIS, **codes) @ w)
        return jnp.sum(jnp.tanh(activations.all_reduce(inside @ u, AXIS, **codes)) ** 2)

    def product(loss, x, *rest):
        return jax.grad(lambda x: jnp.vdot(jax.grad(loss)(x, *rest), v))(x)

    mine = jax.vmap(lambda w, u: product(split, x, w, u), axis_name=AXIS)(*cut)
    right = product(plain, x)
    assert np.linalg.norm(mine[0] - right) < 0.2 * np.linalg.norm(right)
    assert np.vdot(mine[0], right) == pytest.approx(np.vdot(right, right), rel=0.05)
    assert (mine == mine[0]).all()


@pytest.mark.few(6)
@cases
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_one_nan_shows_wherever_the_exact_collective_shows_it(name, mapping):
    case = CASES[name]
    code = compression.mx("e2m1")
    x, g = inputs(case, 3)
    x[(0 if case.equal else 1), ..., 17] = np.nan
    if case.equal == "in":
        x[:] = x[0]
    g[(0 if case.equal == "out" else 2), ..., 3] = np.inf
    if case.equal == "out":
        g[:] = g[0]
    coded = {"forward": code, "backward": code}
    found = MAPPINGS[mapping](lambda x: case.ours(x, **coded), case, x, g)
    with np.errstate(invalid="ignore"):
        expected = case.forward(x), case.backward(g)
    for mine, exact in zip(found, expected, strict=True):
        bad = ~np.isfinite(exact)
        assert bad.any()
        assert not np.isfinite(mine.reshape(exact.shape)[bad]).any()


@pytest.mark.few(6)
@cases
@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("codes", ["none", "identity"])
def test_on_one_of_two_axes_the_other_is_left_alone(name, typed, codes):
    case, n = CASES[name], 2

    def thrice(n, shape, equal, seed=0):
        return 3 * ints(n, shape, equal, seed)

    pairs = [inputs(case, n), inputs(case, n, thrice)]
    x, g = (np.stack(each) for each in zip(*pairs, strict=True))  # [data, model, ..]
    equal = {end: typed and case.equal == end for end in ("in", "out")}
    x = x[:, :1] if equal["in"] else x
    g = g[:, :1] if equal["out"] else g

    def each(x, g):
        both = pulled(lambda x: case.ours(x, **CODES[codes]))
        return jax.tree.map(lambda a: a[None, None], both(x[0, 0], g[0, 0]))

    mesh = jax.sharding.Mesh(
        np.asarray(jax.devices()[:4]).reshape(2, n), ("data", AXIS)
    )
    places = [P("data") if same else P("data", AXIS) for same in equal.values()]
    out = P("data", AXIS)
    mapped = jax.shard_map(
        each, mesh=mesh, in_specs=tuple(places), out_specs=(out, out), check_vma=typed
    )
    y, back = jax.jit(mapped)(x, g)
    for i, (one, cotangent) in enumerate(pairs):
        np.testing.assert_array_equal(y[i], case.forward(one))
        owed = case.backward(cotangent)
        np.testing.assert_array_equal(np.broadcast_to(back[i], owed.shape), owed)

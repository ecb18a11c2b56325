"""In codes: what slow NumPy makes of them, equal replicas, one message for each leg."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import activations, compression
from relaxjax.programs import is_collective, parse
from tests.activations.cases import AXIS, CASES, MAPPINGS, inputs, on_mesh, pulled
from tests.helpers import mesh_of

E4M3 = compression.mx("e4m3")
DETERMINISTIC = {
    "float8": compression.cast(jnp.float8_e4m3fn),
    "bfloat16": compression.cast(jnp.bfloat16),
    **{f"mx {e}": compression.mx(e) for e in ("e4m3", "e3m2", "e2m1", "int8")},
    "nvfp4": compression.nvfp4(),
    "quantize8": compression.quantize(8),
    "quantize4": compression.quantize(4, block_size=16),
    "sign": compression.sign(),
    "top_k": compression.top_k(0.2),
}
RANDOM = {
    "stochastic4": compression.quantize(4, stochastic_rounding=True),
    "random_k": compression.random_k(0.3),
    "tern_grad": compression.tern_grad(),
}
cases = pytest.mark.parametrize("name", CASES)
codes = pytest.mark.parametrize("code", DETERMINISTIC)


def gauss(n, shape, equal, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, *shape)).astype(np.float32)
    return x[:1].repeat(n, 0) if equal else x


def of_workers(fn):
    """One program: a compressor's operations would be compiled one by one."""
    return jax.jit(jax.vmap(fn, axis_name=AXIS))


def in_rows(code, x):
    """What arrives of x [.., h]: each row by itself."""
    width = x.shape[-1]
    rows = jax.jit(jax.vmap(lambda row: compression.roundtrip(code, row)))
    return np.array(rows(x.reshape(-1, width))).reshape(x.shape)


def partial_sums(code, parts):
    """[n, ..] of all workers' parts [n, n, ..]: a worker's own is not encoded."""
    n = len(parts)
    arrived = in_rows(code, parts)
    for i in range(n):
        arrived[i, i] = parts[i, i]
    return arrived.sum(axis=0, dtype=np.float32)


def two_shots(code, x):
    n, shape, width = len(x), x.shape[1:], x.shape[-1]
    rows = x.reshape(n, -1, width)
    filled = np.pad(rows, ((0, 0), (0, -rows.shape[1] % n), (0, 0)))
    sums = partial_sums(code, filled.reshape(n, n, -1, width))
    y = in_rows(code, sums).reshape(-1, width)[: rows.shape[1]].reshape(shape)
    return np.stack([y] * n)


def scattered(code, x, dimension):
    n = len(x)
    parts = np.stack([np.stack(np.split(row, n, axis=dimension)) for row in x])
    return partial_sums(code, parts)


EXPECTED = {  # forward and backward; what is left out permutes rows
    "all_gather": (None, lambda c, g: scattered(c, g, 0)),
    "all_gather, of features": (None, lambda c, g: scattered(c, g, -1)),
    "reduce_scatter": (lambda c, x: scattered(c, x, 0), None),
    "reduce_scatter, of features": (lambda c, x: scattered(c, x, -1), None),
    "all_reduce": (two_shots, lambda c, g: g),
    "copy": (lambda c, x: x, two_shots),
}


def permuted(case, code, x, move):
    """A leg that adds nothing: rows are encoded within the part that travels."""
    n, width = len(x), min(x.shape[-1], case.shape(len(x))[-1])
    if case is CASES["all_to_all, tokens for features"]:
        width = x.shape[-1] if x.shape[1:] == case.shape(n) else x.shape[-1] // n
    cut = x.reshape(*x.shape[:-1], -1, width)
    return move(in_rows(code, cut).reshape(x.shape))


@pytest.mark.few(14)
@cases
@codes
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_values_and_gradients_are_those_of_slow_numpy(name, code, mapping):
    case, made, n = CASES[name], DETERMINISTIC[code], 3
    x, g = inputs(case, n, gauss)
    both = {"forward": made, "backward": made}
    y, back = MAPPINGS[mapping](lambda x: case.ours(x, **both), case, x, g)
    forward, backward = EXPECTED.get(name, (None, None))
    want = forward(made, x) if forward else permuted(case, made, x, case.forward)
    owed = backward(made, g) if backward else permuted(case, made, g, case.backward)
    np.testing.assert_allclose(y, want, 1e-5, 2e-6)
    np.testing.assert_allclose(back.reshape(owed.shape), owed, 1e-5, 2e-6)


def test_the_example_of_two_workers_by_hand():
    a = jnp.float32([[1.9, -1, 0.3, 0.01], [0, 0, 0, 8]])
    b = jnp.float32([[0.1, 1, 0.3, 0.01], [4, 0, 0, -8]])
    total = of_workers(lambda x: activations.all_reduce(x, AXIS, forward=E4M3))
    expected = [[2, 0, 0.625, 0.01953125], [4, 0, 0, 0]]
    np.testing.assert_array_equal(total(jnp.stack([a, b])), [expected, expected])
    part = of_workers(lambda x: activations.reduce_scatter(x, AXIS, forward=E4M3))
    summed = [2.0015625, 0, 0.6125, 0.01976562]
    np.testing.assert_allclose(part(jnp.stack([a, b]))[0], summed, 1e-6)


@pytest.mark.few(8)
@codes
@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("name", ["all_gather", "all_reduce", "copy"])
def test_replicas_are_equal_to_the_bit(name, code, mapping):
    case, made = CASES[name], DETERMINISTIC[code]
    x, g = inputs(case, 4, gauss)
    both = {"forward": made, "backward": made}
    y, back = MAPPINGS[mapping](lambda x: case.ours(x, **both), case, x, g)
    rows = back if name == "copy" else y
    assert len({row.tobytes() for row in rows}) == 1


@pytest.mark.few(5)
@cases
def test_a_token_decodes_alike_beside_any_other(name):
    case, code = CASES[name], compression.nvfp4()
    x, g = inputs(case, 2, gauss)

    def run(x):
        return MAPPINGS["vmap"](lambda x: case.ours(x, forward=code), case, x, g)[0]

    louder = x.copy()
    louder[:, 0] *= 1000
    quiet = case.forward(np.where(louder == x, 1.0, 0)) == case.forward(np.ones_like(x))
    np.testing.assert_array_equal(run(x)[quiet], run(louder)[quiet])


@pytest.mark.few(6)
@cases
@pytest.mark.parametrize("code", RANDOM)
def test_random_codes_are_right_in_the_mean_and_alike_on_all_workers(name, code):
    case, made = CASES[name], RANDOM[code]
    x, g = inputs(case, 3, gauss)

    def run(key):
        draw = {"forward": made, "backward": made, "key": key}
        mapped = jax.vmap(pulled(lambda x: case.ours(x, **draw)), axis_name=AXIS)
        return mapped(jnp.asarray(x), jnp.asarray(g))

    ys, backs = jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), 400))
    for drawn, exact in ((ys, case.forward(x)), (backs, case.backward(g))):
        drawn = np.asarray(drawn).reshape(400, *exact.shape)
        off = np.linalg.norm(drawn.mean(axis=0) - exact)
        assert off <= 1.2 * np.linalg.norm(drawn.std(axis=0)) / 20 + 1e-4
    same = {"all_gather": ys, "all_reduce": ys, "copy": backs}.get(name)
    if same is not None:
        np.testing.assert_array_equal(same, np.asarray(same)[:, :1].repeat(3, 1))


def test_a_sum_in_random_codes_draws_for_each_shot_and_decodes_as_it_drew():
    code, x = compression.random_k(0.5), np.ones((2, 4, 64), np.float32)
    total = jax.vmap(
        lambda x, key: activations.all_reduce(x, AXIS, forward=code, key=key),
        (0, None),
        axis_name=AXIS,
    )
    keys = jax.random.split(jax.random.key(1), 50)
    y = np.asarray(jax.jit(jax.vmap(total, (None, 0)))(x, keys))
    # A worker's own 1 and twice the other's, or nothing; of that twice, or nothing.
    assert set(np.unique(y)) == {0, 2, 6}
    assert y.mean() == pytest.approx(2, rel=0.1)
    halves = y[:, 0, 0] != 0, y[:, 0, 1] != 0  # masks of two rows of a part
    assert 0.4 < (halves[0] == halves[1]).mean() < 0.6


def test_workers_and_parts_draw_apart():
    code = compression.quantize(4, stochastic_rounding=True)
    x = np.random.default_rng(0).normal(size=(1, 1, 400)).repeat(2, 0).repeat(2, 1)
    draw = {"forward": code, "key": 3}
    swap = jax.vmap(
        lambda x: activations.all_to_all(x, AXIS, 0, 0, **draw), axis_name=AXIS
    )
    y = np.asarray(jax.jit(swap)(x.astype(np.float32))).reshape(4, 400)
    same = [(y[i] == y[j]).mean() for i in range(4) for j in range(i)]
    assert max(same) < 0.9
    assert min(same) > 0.4  # whole multiples of the scale stay what they are


def sent_instructions(program, *args):
    """Dtypes and opcodes of what a compiled program sends."""
    computations = parse(program.lower(*args).compile().as_text()).computations
    every = [i for part in computations.values() for i in part if is_collective(i)]
    return [(re.findall(r"[a-z]+[0-9]+", i.shape)[0], i.opcode) for i in every]


@cases
def test_what_travels_is_one_array_of_bytes_for_each_leg(name):
    case = CASES[name]
    x, g = inputs(case, 4, gauss)
    both = {"forward": E4M3, "backward": E4M3}
    program = on_mesh(lambda x: case.ours(x, **both), case, 4, typed=False)
    found = sent_instructions(program, x, g)
    assert len(found) == 2, found  # one each way, or two shots one way
    assert {dtype for dtype, _ in found} == {"u8"}, found


MEASURED = {
    "float8": compression.cast(jnp.float8_e4m3fn),
    **{
        f"mx {e}": compression.mx(e)
        for e in ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "int8")
    },
    "nvfp4": compression.nvfp4(),
    "quantize8": compression.quantize(8),
    "quantize4": compression.quantize(4),
    "none": None,
}


@pytest.mark.few(12)
@cases
@pytest.mark.parametrize("forward", MEASURED)
@pytest.mark.parametrize("backward", MEASURED)
@pytest.mark.parametrize("n", [3, 4])  # from 3 on one worker sends both ways
def test_bytes_are_as_stated_in_the_trace_and_in_the_program(
    name, forward, backward, n
):
    case = CASES[name]
    x, g = inputs(case, n, gauss)
    both = {"forward": MEASURED[forward], "backward": MEASURED[backward]}
    dimension = -1 if name == "reduce_scatter, of features" else 0
    stated = activations.sent_bytes(
        name.partition(",")[0], x[0], n, dimension=dimension, **both
    )
    program = on_mesh(lambda x: case.ours(x, **both), case, n, typed=False)
    assert relaxjax.compiled_wire_bytes(program, x, g) == stated.total  # on CPU
    traced = activations.traced_bytes(
        lambda x: case.ours(x, **both), x[0], axes={AXIS: n, "data": 2}
    )
    assert traced == {AXIS: stated, "data": (0, 0)}


def layer(x, w):
    x = activations.copy(x, AXIS, backward=E4M3)
    return activations.all_reduce(jnp.tanh(x @ w[0]) @ w[1], AXIS, forward=E4M3)


@pytest.mark.long
@pytest.mark.few(4)
@pytest.mark.parametrize("typed", [False, True])
def test_in_a_scan_over_layers_and_computed_again(typed):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 32)).astype(np.float32)
    w = rng.normal(size=(3, 2, 2, 32, 32)).astype(np.float32) / 6

    def loss(w, x, again):
        each = jax.checkpoint(layer) if again else layer
        x, _ = lax.scan(lambda x, w: (each(x, w), None), x, w)
        return jnp.mean(x**2)

    def of_worker(w, x, again):
        value, grads = jax.value_and_grad(loss)(w[:, 0], x, again)
        return value, grads[:, None]

    found = []
    for again in (False, True):
        run = jax.shard_map(
            lambda w, x, again=again: of_worker(w, x, again),
            mesh=mesh_of(2, AXIS),
            in_specs=(P(None, AXIS), P()),
            out_specs=(P(), P(None, AXIS)),
            check_vma=typed,
        )
        found.append(jax.jit(run)(w, x))
    np.testing.assert_allclose(found[0][0], found[1][0], 1e-6)
    np.testing.assert_allclose(found[0][1], found[1][1], 1e-5, 1e-7)

    def whole(w, x):  # on one device, without codes
        for u, v in zip(w[:, :, 0], w[:, :, 1], strict=True):
            x = sum(jnp.tanh(x @ u[i]) @ v[i] for i in range(2))
        return jnp.mean(x**2)

    value, grads = jax.value_and_grad(whole)(w, x)
    assert found[0][0] == pytest.approx(float(value), rel=0.02)
    off = np.linalg.norm(found[0][1] - grads) / np.linalg.norm(grads)
    assert 1e-4 < off < 0.1


@pytest.mark.parametrize("typed", [False, True])
def test_a_gradient_taken_outside_needs_types_that_are_tracked(typed):
    """Without them an output without an axis arrives divided by n."""

    def total(w, x):
        y = activations.all_reduce(w[0] * x, AXIS, forward=compression.identity())
        return jnp.sum(y)

    mapped = jax.shard_map(
        total,
        mesh=mesh_of(4, AXIS),
        in_specs=(P(AXIS), P()),
        out_specs=P(),
        check_vma=typed,
    )
    grads = jax.jit(jax.grad(mapped))(jnp.ones(4), jnp.full((2, 8), 0.5))
    np.testing.assert_allclose(grads, np.full(4, 8.0 if typed else 2.0))


@pytest.mark.few(3)
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_dtypes_come_out_as_they_went_in(dtype, x64):
    with jax.enable_x64(x64):
        dtype = jax.dtypes.canonicalize_dtype(dtype)
        x = jnp.asarray([[[65504.0, -1, 0.3, 0.01]]] * 2).astype(dtype)
        for name in ("all_gather", "all_reduce", "send"):
            y = of_workers(lambda x, n=name: CASES[n].ours(x, forward=E4M3))(x)
            assert y.dtype == dtype
            assert jnp.isfinite(y).all() or (name, dtype) == ("all_reduce", jnp.float16)


@pytest.mark.few(6)
@pytest.mark.parametrize("name", ["all_gather", "all_reduce", "copy", "send"])
@pytest.mark.parametrize("shape", [(), (7,), (0, 4), (3, 0)])
def test_numbers_vectors_and_empty_arrays_pass(name, shape):
    case, both = CASES[name], {"forward": E4M3, "backward": E4M3}
    ours = case.ours if shape else lambda x, **c: activations.all_reduce(x, AXIS, **c)
    x = jnp.ones((2, *shape))
    run = of_workers(pulled(lambda x: ours(x, **both)))
    shaped = jax.vmap(lambda x: ours(x), axis_name=AXIS)(x)
    y, back = run(x, jnp.ones_like(shaped))
    np.testing.assert_array_equal(y, shaped)
    assert back.shape == x.shape


@pytest.mark.few(4)
@pytest.mark.parametrize("code", ["mx e4m3", "mx e2m1", "nvfp4", "quantize8"])
def test_codes_that_are_handed_on_decode_to_what_the_collective_gives(code):
    made, x = DETERMINISTIC[code], gauss(3, (3, 5, 64), False)

    def decoded(payload):
        return made.decompress(payload, 64, None)

    def of_worker(x):
        whole = activations.all_gather_codes(x, AXIS, made)
        parts = activations.all_to_all_codes(x, AXIS, made)
        each = jax.vmap(jax.vmap(decoded))
        return jax.vmap(each)(whole), each(parts)

    gathered, swapped = of_workers(of_worker)(x)
    expected = of_workers(
        lambda x: (
            activations.all_gather(x, AXIS, forward=made),
            activations.all_to_all(x, AXIS, 0, 0, forward=made),
        )
    )(x)
    np.testing.assert_allclose(gathered, expected[0], 1e-6)
    np.testing.assert_allclose(swapped, expected[1], 1e-6)


STRICT = {
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
    "jax_debug_key_reuse": True,
}


@pytest.mark.few(4)
@cases
@pytest.mark.parametrize("code", ["mx e4m3", "mx e2m1", "nvfp4", "stochastic4"])
def test_it_traces_under_strict_promotion_and_checks_of_keys(name, code):
    case, made = CASES[name], {**DETERMINISTIC, **RANDOM}[code]
    x, g = inputs(case, 2, gauss)
    before = {flag: getattr(jax.config, flag) for flag in STRICT}
    try:
        for flag, value in STRICT.items():
            jax.config.update(flag, value)
        both = {"forward": made, "backward": made, "key": jax.random.key(0)}
        MAPPINGS["typed mesh"](lambda x: case.ours(x, **both), case, x, g)
    finally:
        for flag, value in before.items():
            jax.config.update(flag, value)

"""Graphs from functions, against graphs drawn by hand and XLA's own counts."""

import math
import re
from typing import cast

import jax
import jax.numpy as jnp
import pytest

from relaxjax.schedule import (
    Device,
    Estimate,
    Graph,
    Link,
    analytic,
    backward_order,
    given,
    makespan,
    measured,
    plan_buckets,
    tac,
)


def struct(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def mlp(params, x):
    for layer in params:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x


LAYERS = [{"w": struct(8, 8), "b": struct(8)} for _ in range(3)]
X = struct(4, 8)
DEVICE = Device(flops=1e9, bandwidth=1e8)
LINK = Link(latency=1e-3, bandwidth=1e6)


def needs_of(graph):
    return {name: needs for name, (_, needs) in graph.ops.items()}


def test_three_layers_as_a_person_draws_them():
    graph = Graph.from_function(mlp, LAYERS, X, oracle=analytic(DEVICE), link=LINK)
    assert needs_of(graph) == {
        "dot_general": ("0/w",),
        "add": ("dot_general", "0/b"),
        "max": ("add",),
        "dot_general.2": ("max", "1/w"),
        "add.2": ("dot_general.2", "1/b"),
        "max.2": ("add.2",),
        "dot_general.3": ("max.2", "2/w"),
        "add.3": ("dot_general.3", "2/b"),
        "max.3": ("add.3",),
    }
    assert graph.nbytes["0/w"] == 256
    assert graph.recvs["0/w"] == pytest.approx(1e-3 + 256e-6)
    # x @ w: 2 * 4 * 8 * 8 flops in 0.5 us; (4*8 + 8*8 + 4*8) * 4 bytes in 5.12 us.
    assert graph.ops["dot_general"][0] == pytest.approx(5.12e-6)
    assert graph.attributed == 1.0
    assert graph.sends == {}


def test_arithmetic_binds_on_a_slow_device():
    slow = analytic(Device(flops=1e6, bandwidth=1e12, overhead=1.0))
    graph = Graph.from_function(mlp, LAYERS, X, oracle=slow)
    assert graph.ops["dot_general"][0] == pytest.approx(1.0 + 512e-6)
    assert graph.ops["max"][0] == pytest.approx(1.0 + 32e-6)


def loss(params, x):
    return jnp.sum(mlp(params, x))


def test_a_training_step_pushes_each_gradient_once():
    graph = Graph.from_loss(loss, LAYERS, X)
    assert set(graph.sends) == set(graph.recvs)
    assert all(graph.sends[n][0] == graph.recvs[n] for n in graph.recvs)
    # The gradient of the last weight needs the forward pass up to it, and not the
    # backward pass of the first layer.
    assert set(graph.sends["2/w"][1]) <= set(graph.ops)
    order = list(graph.ops)
    ready = {
        name: max(order.index(need) for need in needs)
        for name, (_, needs) in graph.sends.items()
    }
    assert ready["2/w"] < ready["1/w"] < ready["0/w"]


def test_value_and_grad_through_pushes():
    both = Graph.from_function(
        jax.value_and_grad(loss), LAYERS, X, pushes=lambda out: out[1]
    )
    assert set(both.sends) == set(both.recvs)


def xla_flops(fn, *args):
    analysis = jax.jit(fn).lower(*args).cost_analysis()
    assert analysis is not None
    return analysis["flops"]


def our_flops(fn, params, *args):
    """With a device of 1 flop/s and free memory, seconds are flops."""
    oracle = analytic(Device(flops=1.0, bandwidth=math.inf))
    return Graph.from_function(fn, params, *args, oracle=oracle).computation


def conv(params, x):
    return jax.lax.conv_general_dilated(
        x, params["k"], (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@pytest.mark.parametrize(
    ("fn", "params", "args"),
    [
        (mlp, LAYERS, [X]),
        (conv, {"k": struct(3, 3, 4, 16)}, [struct(2, 17, 17, 4)]),
        (
            lambda p, x: jnp.einsum("bij,bjk->bik", x, p),
            struct(5, 6, 7),
            [struct(5, 4, 6)],
        ),
    ],
    ids=["mlp", "convolution", "batched product"],
)
def test_flops_are_those_that_xla_counts(fn, params, args):
    assert our_flops(fn, params, *args) == pytest.approx(xla_flops(fn, params, *args))


@pytest.mark.parametrize(
    ("fn", "flops"),
    [
        (lambda p: jnp.exp(p), 24),
        (lambda p: jnp.sum(p, axis=1), 24),
        (lambda p: jnp.cumsum(p, axis=1), 24),
        (lambda p: jnp.max(p), 24),
        (lambda p: jax.lax.sort(p, dimension=1), 24 * 3),
        (lambda p: jax.lax.top_k(p, 2), 24),
        (lambda p: p.T, 0),
        (lambda p: p.reshape(24), 0),
        (lambda p: p.astype(jnp.bfloat16), 0),
        (lambda p: p[1:, :2], 0),
    ],
)
def test_flops_by_hand(fn, flops):
    assert our_flops(fn, struct(3, 8)) == flops


@pytest.mark.parametrize(
    ("fn", "nbytes"),
    [
        (lambda p: jnp.exp(p), 2 * 96),
        (lambda p: p.T, 2 * 96),
        (lambda p: p[0:1, 0:2], 2 * 8),
        (lambda p: jax.lax.dynamic_update_slice(p, jnp.ones((1, 2)), (0, 0)), 2 * 16),
        (lambda p: p + p, 3 * 96),
    ],
)
def test_memory_traffic_by_hand(fn, nbytes):
    oracle = analytic(Device(flops=math.inf, bandwidth=1.0))
    assert Graph.from_function(fn, struct(3, 8), oracle=oracle).computation == nbytes


def test_keys_count_their_words():
    key = jax.eval_shape(lambda: jax.random.key(0))
    fn = jax.random.normal
    graph = Graph.from_function(lambda p, k: p * fn(k, (8,)), struct(8), key)
    assert graph.computation > 0
    keys = {"key": jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 3))}
    use = Graph.from_function(lambda p: jax.random.bits(p["key"][0]), keys)
    assert use.nbytes == {"key": 24}


@pytest.mark.parametrize(
    "wrap",
    [jax.jit, jax.checkpoint, lambda f: jax.jit(jax.checkpoint(f))],
    ids=["jit", "checkpoint", "both"],
)
def test_functions_inside_functions_are_walked(wrap):
    plain = Graph.from_function(mlp, LAYERS, X)
    wrapped = Graph.from_function(wrap(mlp), LAYERS, X)
    assert next(iter(wrapped.ops.values()))[1] == ("0/w",)
    assert [t for t, _ in wrapped.ops.values()] == [t for t, _ in plain.ops.values()]
    assert list(wrapped.masks.values()) == list(plain.masks.values())


def test_custom_derivatives_are_walked():
    @jax.custom_vjp
    def double(x):
        return jnp.sin(x) * 2

    double.defvjp(lambda x: (double(x), x), lambda x, g: (g * jnp.cos(x) * 2,))
    forward = Graph.from_function(lambda p: double(p), struct(3))
    assert needs_of(forward) == {"sin": ("params",), "mul": ("sin",)}
    backward = Graph.from_loss(lambda p: jnp.sum(double(p)), struct(3))
    assert any("cos" in name for name in backward.ops)


def test_scan_starts_with_its_first_layer():
    def scanned(params, x):
        def body(x, layer):
            return jnp.tanh(jnp.tanh(x @ layer["a"]) @ layer["b"]), None

        return jax.lax.scan(body, x, params)[0]

    params = {"a": struct(5, 8, 8), "b": struct(5, 8, 8)}
    graph = Graph.from_function(scanned, params, X)
    assert needs_of(graph) == {
        "dot_general": ("a",),
        "tanh": ("dot_general",),
        "dot_general.2": ("tanh", "b"),
        "tanh.2": ("dot_general.2",),
        "scan": ("tanh.2", "a", "b"),
    }
    first = [graph.ops[name][0] for name in list(graph.ops)[:4]]
    assert graph.ops["scan"][0] == pytest.approx(4 * sum(first))
    short = {"a": struct(1, 8, 8), "b": struct(1, 8, 8)}
    assert "scan" not in Graph.from_function(scanned, short, X).ops


def test_nested_scan_counts_every_iteration():
    def nested(w, x):
        def outer(x, _):
            return jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=3)[0], None

        return jax.lax.scan(outer, x, None, length=5)[0]

    graph = Graph.from_function(nested, struct(8, 8), X)
    once = Graph.from_function(lambda w, x: x @ w, struct(8, 8), X)
    assert graph.computation == pytest.approx(15 * once.computation)


def test_a_scan_of_no_iterations_costs_nothing():
    def idle(w, x):
        return jax.lax.scan(lambda x, _: (x @ w, None), x, None, length=0)[0] + w[0]

    assert list(Graph.from_function(idle, struct(8, 8), X).ops) == [
        "slice",
        "add",
    ]


def test_scalar_functions_of_reductions_and_scatters_are_part_of_them():
    ids = jax.ShapeDtypeStruct((4,), jnp.int32)

    def scattered(table, i):
        return table.at[i].add(jnp.ones((4, 16)), mode="promise_in_bounds")

    graph = Graph.from_function(
        scattered,
        struct(100, 16),
        ids,
        oracle=analytic(Device(flops=1.0, bandwidth=math.inf)),
    )
    (name,) = (op for op in graph.ops if op.startswith("scatter"))
    assert graph.ops[name][0] == 4 * 16
    reduced = our_flops(
        lambda p: jax.lax.reduce(p, jnp.float32(0), lambda a, b: a + 2 * b, (0, 1)),
        struct(8, 8),
    )
    assert reduced == 64
    pooled = our_flops(
        lambda p: jax.lax.reduce_window(
            p, -jnp.inf, jax.lax.max, (2, 2), (1, 1), "VALID"
        ),
        struct(8, 8),
    )
    assert pooled == 7 * 7 * 4


def test_the_gradient_of_an_embedding_moves_its_rows():
    ids = jax.ShapeDtypeStruct((4,), jnp.int32)
    graph = Graph.from_loss(
        lambda table, i: jnp.sum(table[i] ** 2),
        struct(1000, 16),
        ids,
        oracle=analytic(Device(flops=math.inf, bandwidth=1.0)),
    )
    (scatter,) = (op for op in graph.ops if "scatter" in op)
    rows = 4 * 16 * 4
    assert 2 * rows <= graph.ops[scatter][0] <= 2 * rows + 100


def test_a_parameter_may_be_called_like_an_operation():
    graph = Graph.from_function(
        lambda p, x: p["mul"] * x, {"mul": struct(3)}, struct(3)
    )
    assert needs_of(graph) == {"mul.2": ("mul",)}


def test_a_bare_array_has_one_name_everywhere():
    order = backward_order(lambda w: jnp.sum(w * w), struct(3))
    (bucket,) = plan_buckets(struct(3), order=order)
    assert bucket.segments[0].name == order[0] == "params"


def test_cond_costs_its_most_expensive_branch():
    def branching(w, x):
        cheap, costly = (lambda x: x * w), (lambda x: (x @ w) @ w)
        return jax.lax.cond(jnp.sum(x) > 0, costly, cheap, x)

    graph = Graph.from_function(branching, struct(8, 8), struct(8, 8))
    products = Graph.from_function(lambda w, x: (x @ w) @ w, struct(8, 8), struct(8, 8))
    assert graph.ops["cond"][0] == pytest.approx(products.computation)
    assert graph.dep("cond") == ("params",)


def test_while_and_unknown_primitives_are_not_attributed():
    def looping(w, x):
        x = x @ w
        return jax.lax.while_loop(lambda x: jnp.sum(x) < 1, lambda x: x @ w, x)

    graph = Graph.from_function(looping, struct(8, 8), struct(8, 8))
    assert 0 < graph.attributed < 1

    def solving(w, x):
        return jnp.linalg.cholesky(x @ w)

    assert 0 < Graph.from_function(solving, struct(8, 8), struct(8, 8)).attributed < 1


def test_an_embedding_reads_its_rows_only():
    table = struct(100_000, 16)
    ids = jax.ShapeDtypeStruct((4,), jnp.int32)
    graph = Graph.from_function(lambda t, i: t[i], table, ids, oracle=analytic(DEVICE))
    assert graph.computation < 1e-4  # the whole table would take 0.064 s
    assert graph.nbytes["params"] == 6_400_000


def test_python_numbers_and_none_may_be_parameters():
    graph = Graph.from_function(lambda p, x: x * p["a"], {"a": 2.0, "b": None}, X)
    assert graph.nbytes == {"a": 4}


def test_dead_code_is_dropped():
    def wasteful(w, x):
        jnp.exp(w @ w)
        return x @ w

    graph = Graph.from_function(wasteful, struct(8, 8), X)
    assert list(graph.ops) == ["dot_general.2"]


def test_names_come_from_scopes():
    def scoped(w, x):
        with jax.named_scope("tower"):
            return x @ w

    assert list(Graph.from_function(scoped, struct(8, 8), X).ops) == [
        "tower/dot_general"
    ]


def test_times_scaled_leave_the_order():
    fast = Graph.from_function(mlp, LAYERS, X, oracle=analytic(DEVICE), link=LINK)
    assert tac(fast.scaled(recvs=3.0, ops=3.0)) == tac(fast)
    assert tac(fast) == ["0/w", "0/b", "1/w", "1/b", "2/w", "2/b"]


def test_given_times():
    graph = Graph.from_function(
        mlp,
        LAYERS,
        X,
        oracle=given({"dot_general": 2.0, "add.2": 7.0, "add": 1, "max": 0}),
    )
    assert graph.computation == 3 * 2 + 1 + 7 + 1
    with pytest.raises(ValueError, match=r"no entry for operation 'max'.*analytic\(\)"):
        Graph.from_function(mlp, LAYERS, X, oracle=given({"dot_general": 1, "add": 1}))
    mixed = given({"dot_general": 5.0}, otherwise=lambda *_: Estimate(1.0, 0.0))
    partly = Graph.from_function(mlp, LAYERS, X, oracle=mixed)
    assert partly.attributed == pytest.approx(15 / 21)


def test_measured_times_are_positive_and_attributed():
    def fn(w, x):
        return (x @ w) * jax.random.normal(jax.random.key(0), (4, 8))

    oracle = measured(repeats=1)
    graph = Graph.from_function(fn, struct(8, 8), X, oracle=oracle)
    assert graph.ops["dot_general"][0] > 0
    again = Graph.from_function(fn, struct(8, 8), X, oracle=oracle)
    assert again.ops["dot_general"][0] == graph.ops["dot_general"][0]
    assert 0 < graph.attributed < 1  # keys cannot be run alone


def test_backward_order_counts_layers_as_numbers():
    params = {f"layer{i}": struct(4, 4) for i in range(12)}

    def deep(params, x):
        for i in range(12):
            x = jnp.tanh(x @ params[f"layer{i}"])
        return jnp.sum(x)

    expected = [f"layer{i}" for i in reversed(range(12))]
    assert backward_order(deep, params, struct(2, 4)) == expected


def test_backward_order_follows_the_function_and_not_the_names():
    params = {"a": struct(4, 4), "b": struct(4, 4), "unused": struct(3)}

    def swapped(params, x):
        return jnp.sum(jnp.tanh(x @ params["b"]) @ params["a"]), {"aux": x}

    order = backward_order(swapped, params, struct(2, 4), has_aux=True)
    assert order == ["unused", "a", "b"]


def test_backward_order_of_a_scan_reverses_names():
    params = {"w2": struct(3, 4, 4), "w10": struct(3, 4, 4)}

    def scanned(params, x):
        def body(x, layer):
            return jnp.tanh(x @ layer["w2"] @ layer["w10"]), None

        return jnp.sum(jax.lax.scan(body, x, params)[0])

    assert backward_order(scanned, params, struct(2, 4)) == ["w10", "w2"]


def compiled_text(fn, params, *args):
    text = jax.jit(fn, keep_unused=True).lower(params, *args).compile().as_text()
    assert text is not None
    return text


def test_optimized_hlo_has_the_same_needs_and_products():
    oracle = Device(flops=1.0, bandwidth=math.inf)
    text = compiled_text(mlp, LAYERS, X)
    fused = Graph.from_hlo(text, LAYERS, device=oracle)
    assert list(fused.recvs) == list(Graph.from_function(mlp, LAYERS, X).recvs)
    last = list(fused.ops)[-1]
    assert set(fused.dep(last)) == set(fused.recvs)
    products = 3 * 2 * 4 * 8 * 8
    assert products <= fused.computation <= 1.3 * products
    assert makespan(fused, tac(fused)) > 0


def test_optimized_hlo_of_convolutions_and_loops():
    oracle = Device(flops=1.0, bandwidth=math.inf)
    params, x = {"k": struct(3, 3, 4, 16)}, struct(2, 17, 17, 4)
    graph = Graph.from_hlo(compiled_text(conv, params, x), params, device=oracle)
    assert graph.computation >= 2 * (2 * 8 * 8 * 16) * 3 * 3 * 4

    def looping(w, x):
        return jax.lax.scan(lambda x, _: (jnp.sin(x @ w), None), x, None, length=50)[0]

    text = compiled_text(looping, struct(8, 8), X)
    loop = Graph.from_hlo(text, struct(8, 8), device=oracle)
    assert loop.computation >= 50 * 2 * 4 * 8 * 8


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Graph.from_function(mlp, [], X), "params has no leaves"),
        (
            lambda: Graph.from_function(lambda p, x: x, LAYERS, X),
            "uses none of its parameters ['0/b', '0/w', '1/b', '1/w', '2/b']",
        ),
        (
            lambda: Graph.from_function(mlp, LAYERS, X, pushes=lambda out: {"w": out}),
            "pushes must pick gradients with the names of the parameters",
        ),
        (
            lambda: Graph.from_function(
                lambda p: p["a"]["b"] + p["a/b"], {"a": {"b": X}, "a/b": X}
            ),
            "two leaves of params are called 'a/b'",
        ),
        (lambda: measured(repeats=0), "repeats must be at least 1, got 0"),
        (lambda: given({"dot": -1.0}), "times['dot'] must be finite and >= 0"),
        (lambda: Graph.from_hlo("HloModule x", LAYERS), "text has no ENTRY"),
        (
            lambda: Graph.from_hlo(compiled_text(mlp, LAYERS, X), struct(7)),
            "first 1 parameters do not have the sizes of the leaves of params",
        ),
        (lambda: Link(latency=-1.0), "latency must be finite and >= 0"),
        (lambda: Link(bandwidth=0), "bandwidth must be > 0 bytes per second, got 0"),
        (lambda: Link(bandwidth=math.nan), "bandwidth must be > 0 bytes per second"),
        (lambda: Device(flops=-1), "flops must be > 0 flops per second, got -1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Link(bandwidth=cast("float", "10G")),
            "bandwidth must be a number of bytes per second",
        ),
        (
            lambda: Graph.from_function(mlp, LAYERS, X, link=cast("Link", 1e9)),
            "link must be of type Link, got 1000000000.0: give Link(latency=...",
        ),
        (
            lambda: Graph.from_function(
                mlp, LAYERS, X, oracle=lambda *_: cast("Estimate", 1.0)
            ),
            "the oracle's answer must be of type Estimate, got 1.0",
        ),
    ],
)
def test_kinds(call, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        call()

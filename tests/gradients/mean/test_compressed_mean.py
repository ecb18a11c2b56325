"""all_reduce with a compressor: what comes out, what is kept, and what is refused."""

from typing import Any, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import all_reduce, compression, emulate, skip_nonfinite, wire_bytes
from relaxjax._core._merge_rules import MEAN, SUM
from relaxjax.collectives import ring_wire_bytes
from relaxjax.gradients.mean._choices import TWO_AXES
from relaxjax.gradients.mean._compressed_mean import EXCHANGES
from relaxjax.programs import is_collective, parse
from tests import helpers, sharded
from tests.compiled_text import collectives, needs
from tests.helpers import assert_close

WORKERS = 4
SHAPES = {"w": (6, 5), "b": (7,)}
EF_SIGN = compression.error_feedback(compression.sign())


def tree(seed: int, scale: float = 1.0) -> dict[str, np.ndarray]:
    """Updates of all workers."""
    rng = np.random.default_rng(seed)
    return {
        k: (scale * rng.normal(size=(WORKERS, *shape))).astype(np.float32)
        for k, shape in SHAPES.items()
    }


def params_of(dtype: Any = jnp.float32) -> Any:
    return {k: jnp.zeros(shape, dtype) for k, shape in SHAPES.items()}


def mapped(fn: Any, *args: Any) -> Any:
    return jax.jit(jax.vmap(fn, axis_name="data"))(*args)


def once(tx: Any, grads: Any, **extra: Any) -> Any:
    def update(grads, extra):
        return tx.update(grads, tx.init(grads), **extra)

    return mapped(update, grads, extra)


def mean(grads: Any) -> Any:
    return jax.tree.map(lambda g: np.mean(g, axis=0), grads)


@pytest.mark.few(2)
@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "ring"])
@pytest.mark.parametrize("inner", [compression.sign, lambda: compression.quantize(2)])
def test_nothing_is_lost_over_200_steps(algorithm, inner):
    """Sum of out + mean residual == sum of mean input; in two_shot for both sides."""
    codec = compression.error_feedback(inner())
    tx = all_reduce("data", algorithm=algorithm, compressor=codec)
    every = jax.tree.map(lambda *g: np.stack(g, 1), *[tree(s) for s in range(200)])

    def run(every):
        def step(carry, g):
            state, total = carry
            out, state = tx.update(g, state)
            return (state, jax.tree.map(jnp.add, total, out)), None

        first = jax.tree.map(lambda g: g[0], every)
        zeros = jax.tree.map(jnp.zeros_like, first)
        return jax.lax.scan(step, (tx.init(first), zeros), every)[0]

    state, total = mapped(run, every)
    residual: Any = state.compressed.feedback.residual
    for k in SHAPES:
        left = total[k][0] + np.mean(residual[k], axis=0)
        expected = every[k].mean(0).sum(0)
        error = np.linalg.norm(left - expected) / np.linalg.norm(expected)
        assert error < 1e-5
        assert np.abs(np.mean(residual[k], axis=0)).max() > 1e-3


@pytest.mark.few(2)
@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "ring"])
@pytest.mark.parametrize("wrap", [compression.ef21, compression.econtrol])
def test_what_all_know_is_the_mean_of_what_they_know_of_each(algorithm, wrap):
    """EF21's G == mean of h, through every lossy stage."""
    codec = wrap(compression.quantize(2))
    tx: Any = all_reduce("data", algorithm=algorithm, compressor=codec)

    def run(first, second):
        state = tx.init(first)
        for g in (first, second, first):
            out, state = tx.update(g, state)
        return out, state.compressed.feedback

    out, state = mapped(run, tree(0), tree(1))
    for k in SHAPES:
        known = np.mean(state.known[k], axis=0)
        np.testing.assert_allclose(state.mean[k][0], known, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(out[k][0], known, rtol=1e-5, atol=1e-6)


def test_a_lossless_compressor_is_the_plain_mean():
    for algorithm in ("psum", "one_shot", "two_shot", "ring"):
        tx = all_reduce("data", compressor=compression.identity(), algorithm=algorithm)
        out, _ = once(tx, tree(0))
        assert_close(jax.tree.map(lambda x: x[1], out), mean(tree(0)), 1e-6)


def test_the_sum_is_n_times_the_mean():
    kinds = {
        op: all_reduce("data", compressor=EF_SIGN, op=op) for op in ("mean", "sum")
    }
    outs = {op: once(tx, tree(0))[0] for op, tx in kinds.items()}
    scaled = jax.tree.map(lambda x: np.asarray(x) * WORKERS, outs["mean"])
    assert_close(outs["sum"], scaled, 1e-6)


def test_one_worker_sends_and_loses_nothing():
    tx: Any = all_reduce("data", compressor=EF_SIGN)
    alone = jax.tree.map(lambda g: g[:1], tree(0))
    out, state = once(tx, alone)
    helpers.assert_equal(out, alone)
    assert all((r == 0).all() for r in jax.tree.leaves(state.compressed.feedback))
    assert wire_bytes(tx, params_of(), emulate(1)) == 0


def test_weights_are_of_examples_and_an_absent_worker_counts_for_nothing():
    grads = tree(0)
    grads["b"][2] = np.nan
    weight = np.array([3, 1, 0, 4], np.float32)
    tx = all_reduce(
        "data", compressor=compression.error_feedback(compression.identity())
    )
    out, _ = once(tx, grads, weight=weight)
    expected = {
        k: np.average(
            np.where(weight.reshape(-1, *[1] * (g.ndim - 1)) == 0, 0, g), 0, weight
        )
        for k, g in grads.items()
    }
    expected = jax.tree.map(lambda x: x.astype(np.float32), expected)
    assert_close(jax.tree.map(lambda x: x[0], out), expected, 1e-5)


def test_a_negative_weight_is_seen_where_updates_are_zero():
    tx: Any = all_reduce("data", compressor=compression.identity())

    def update(x, w):
        return tx.update(x, tx.init(x), weight=w)[0]

    out = jax.vmap(update, axis_name="data")(jnp.zeros((2, 3)), jnp.array([1.0, -1.0]))
    assert np.isnan(out).all()


def test_an_absent_worker_sends_nothing_of_what_it_owes():
    tx: Any = all_reduce("data", algorithm="one_shot", compressor=EF_SIGN)

    def run(g, some, nobody):
        _, owed = tx.update(g, tx.init(g))
        _, then = tx.update(g, owed, weight=some)
        out, still = tx.update(g, owed, weight=nobody)
        return out, *(s.compressed.feedback.residual for s in (owed, then, still))

    some, nobody = np.array([1, 1, 0, 1], np.float32), np.zeros(4, np.float32)
    out, owed, then, still = mapped(run, tree(0)["w"], some, nobody)
    assert (out == 0).all()
    helpers.assert_equal(still, owed)
    helpers.assert_equal(then[2], owed[2])
    assert not np.array_equal(then[1], owed[1])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_leaves_keep_a_wide_residual(dtype):
    grads = jax.tree.map(lambda g: g.astype(dtype), tree(0))
    out, state = once(all_reduce("data", compressor=EF_SIGN), grads)
    assert {x.dtype for x in jax.tree.leaves(out)} == {jnp.dtype(dtype)}
    residual = jax.tree.leaves(state.compressed.feedback)
    assert {x.dtype for x in residual} == {jnp.dtype(jnp.float32)}


@pytest.mark.few(2)
@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "ring"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_seen_by_all_and_skipped_with_its_residual(
    algorithm, bad
):
    reducer = all_reduce("data", algorithm=algorithm, compressor=EF_SIGN)
    first, second = tree(0), tree(1)
    second["w"][1, 3, 2] = bad
    out, _ = once(reducer, second)
    for worker in range(WORKERS):
        assert not np.isfinite(out["w"][worker]).all()

    tx = skip_nonfinite(reducer, "data")

    def two(first, second):
        _, before = tx.update(first, tx.init(first))
        out, after = tx.update(second, before)
        return out, before, after

    out, before, after = mapped(two, first, second)
    assert all((x == 0).all() for x in jax.tree.leaves(out))
    kept = (jax.tree.leaves(s.inner_state.compressed) for s in (before, after))
    helpers.assert_equal(*map(list, kept))


def test_a_fall_of_the_learning_rate_scales_what_is_owed_only_behind_it():
    """What one step lost at rate 1 comes at rate 0.1: a tenth of it, or all of it."""
    codec = compression.error_feedback(compression.top_k(0.5, block_size=None))
    schedule = optax.exponential_decay(-1.0, 1, 0.1, staircase=True)
    rate = optax.scale_by_schedule(schedule)
    reducer = all_reduce("data", algorithm="one_shot", compressor=codec)

    def moved(tx):
        def run(g):
            state, total = tx.init(g), jnp.zeros_like(g)
            for step in (g, 0 * g):
                out, state = tx.update(step, state)
                total = total + out
            return total

        g = np.tile(np.array([3, 2, 1, 4], np.float32), (WORKERS, 1))
        return mapped(run, g)[0]

    np.testing.assert_allclose(moved(optax.chain(reducer, rate)), [-3, -0.2, -0.1, -4])
    np.testing.assert_allclose(moved(optax.chain(rate, reducer)), [-3, -2, -1, -4])


@pytest.mark.long
def test_same_seed_same_bits_and_other_steps_other_ones():
    def outs(seed):
        tx = all_reduce("data", compressor=compression.random_k(0.3), seed=seed)

        def run(g):
            one, state = tx.update(g, tx.init(g))
            return one, tx.update(g, state)[0]

        return mapped(run, tree(0)["w"])

    helpers.assert_equal(outs(0), outs(0))
    first, second = outs(0)
    assert not np.array_equal(first == 0, second == 0)
    assert not np.array_equal(first == 0, outs(1)[0] == 0)


def test_buckets_draw_apart():
    x = np.arange(1.0, 65.0, dtype=np.float32)
    same = {"a": np.tile(x, (WORKERS, 1)), "b": np.tile(x, (WORKERS, 1))}
    codec = compression.random_k(0.3)
    tx = all_reduce("data", compressor=codec, bucket_bytes=x.nbytes)
    out, _ = once(tx, same)
    assert not np.array_equal(out["a"], out["b"])


def test_rounding_differs_between_workers_and_masks_do_not():
    same = np.tile(np.float32(np.linspace(-1, 1, 64)), (WORKERS, 1))
    codec = compression.error_feedback(
        compression.quantize(2, stochastic_rounding=True)
    )
    tx = all_reduce("data", algorithm="one_shot", compressor=codec)
    _, state = once(tx, same)
    residual = np.asarray(state.compressed.feedback.residual)
    assert not np.array_equal(residual[0], residual[1])
    tx = all_reduce(
        "data", compressor=compression.error_feedback(compression.random_k(0.3))
    )
    _, state = once(tx, same)
    helpers.assert_equal(*state.compressed.feedback.residual[:2])


@pytest.mark.parametrize(
    ("compressor", "part"),
    [(compression.sign(), 30), (compression.quantize(4), 7.5)],
    ids=["sign", "quantize4"],
)
def test_two_shot_of_four_workers_is_as_small_as_the_payload(compressor, part):
    x = jax.ShapeDtypeStruct((1 << 20,), jnp.float32)
    tx: Any = all_reduce("data", algorithm="two_shot", compressor=compressor)
    assert wire_bytes(tx, x, emulate(4)) <= ring_wire_bytes(x, 4) / part


def test_feedback_adds_one_buffer_of_the_gradients_size():
    size = 1 << 16

    def compiled(codec):
        tx = all_reduce("data", compressor=codec, bucket_bytes=2**30)
        mesh = helpers.mesh_of(WORKERS)
        x = jax.ShapeDtypeStruct((WORKERS, size), jnp.float32)
        state = jax.eval_shape(jax.vmap(tx.init, axis_name="data"), x)

        def local(g, state):
            g, state = jax.tree.map(lambda y: y[0], (g, state))
            out = tx.update(g, state)
            return jax.tree.map(lambda y: y[None], out)

        step = jax.shard_map(
            local,
            mesh=mesh,
            in_specs=P("data"),
            out_specs=P("data"),
            check_vma=False,
        )
        lowered = jax.jit(step, donate_argnums=(0, 1)).lower(x, state)
        found = lowered.compile().memory_analysis()
        assert found is not None
        return found.argument_size_in_bytes, found.temp_size_in_bytes

    plain, fed = compiled(compression.sign()), compiled(EF_SIGN)
    assert fed[0] - plain[0] == 4 * size
    assert fed[1] - plain[1] <= 4 * size


@pytest.mark.long
@pytest.mark.parametrize("codec", [EF_SIGN, compression.loco(compression.sign())])
def test_beside_tensor_parallelism_each_device_sends_its_own_shard(codec):
    mesh = sharded.mesh_of(4, 2)
    params = sharded.sharded(sharded.problem(), mesh)
    tx: Any = optax.chain(
        all_reduce("data", compressor=codec, specs=sharded.SPECS), optax.sgd(0.1)
    )
    params, state = relaxjax.init(tx, params, mesh, axis_name="data")
    gradient = jax.grad(sharded.loss_fn)
    step = relaxjax.data_parallel(helpers.step_of(gradient, tx), mesh, axis_name="data")
    batch = helpers.batches(1, rows=8)[0]
    hlo = helpers.optimized_hlo(step.lower(params, state, batch))
    sent = [kind for kind, _ in collectives(hlo) if "all-to-all" in kind]
    assert sent
    for kind, groups in collectives(hlo):
        if "all-to-all" in kind or "all-gather" in kind:  # over "data" alone
            assert all(len({d % 2 for d in group}) == 1 for group in groups)
    _, state, _ = step(params, state, batch)
    residual = state[0].compressed.feedback[0]
    assert residual["layer1"]["w"].sharding.spec == P("data", None, "model")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"compressor": "sign"}, r"compressor='sign' is not a Compressor; make one"),
        (
            {"compressor": EF_SIGN, "algorithm": "tree"},
            r"'tree' carries no compressor.*use one of psum, ring, two_shot, one_shot",
        ),
        (
            {"compressor": EF_SIGN, "algorithm": "psum"},
            r"'psum' adds payloads, and those of sign cannot be added",
        ),
        ({"compressor": EF_SIGN, "op": "adasum"}, r"adasum' with compressor=sign"),
        (
            {"compressor": EF_SIGN, "algorithm": "hierarchical"},
            r"algorithm='hierarchical': axis_name='data' must be two axes",
        ),
        (
            {"compressor": EF_SIGN, "algorithm": "two_level"},
            r"algorithm='two_level': axis_name='data' must be two axes",
        ),
        (
            {"compressor": None, "algorithm": "two_level"},
            r"'two_level' with compressor=None: it is for payloads.*'hierarchical'",
        ),
    ],
)
def test_pairs_that_cannot_be(words, message):
    kind = TypeError if words["compressor"] == "sign" else ValueError
    with pytest.raises(kind, match=message):
        all_reduce("data", **words)


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.complex64])
def test_leaves_that_are_not_real_floats(dtype):
    with pytest.raises(
        ValueError, match=r"leaf 'b' is .*sign compresses real floating"
    ):
        all_reduce("data", compressor=EF_SIGN).init(params_of(dtype))


def test_updates_that_are_not_real_floats():
    tx: Any = all_reduce("data", compressor=EF_SIGN)

    def update(x):
        return tx.update({"b": x + 1j}, tx.init({"b": x}))

    with pytest.raises(ValueError, match=r"leaf 'b' is complex64, and sign compresses"):
        jax.eval_shape(jax.vmap(update, axis_name="data"), jnp.zeros((WORKERS, 3)))


def test_linear_codes_pack_what_the_compiler_shards():
    """Where psum itself takes whole leaves."""
    tx: Any = all_reduce("data", compressor=compression.identity(), algorithm="psum")
    spec = P("data")
    update = jax.shard_map(
        lambda x: tx.update(x, tx.init(x))[0],
        mesh=sharded.mesh_of(WORKERS, 2),
        in_specs=spec,
        out_specs=spec,
        axis_names={"data"},
    )
    with pytest.raises(ValueError, match=r"all_reduce: algorithm='psum' packs leaves"):
        jax.eval_shape(update, jnp.zeros((WORKERS, 4)))


def test_there_is_nothing_to_keep_without_a_compressor():
    state: Any = all_reduce("data").init(params_of())
    assert state.compressed == ()


def test_where_all_leaves_are_masked_nothing_happens():
    tx: Any = all_reduce("data", compressor=EF_SIGN)
    state = tx.init({})

    def update(x):
        assert tx.update({}, state) == ({}, state)
        return x

    jax.eval_shape(jax.vmap(update, axis_name="data"), jnp.zeros(WORKERS))


@pytest.mark.parametrize(("op", "rule"), [("mean", MEAN), ("sum", SUM)])
def test_what_workers_lost_is_merged_like_their_updates(op, rule):
    state: Any = all_reduce("data", compressor=EF_SIGN, op=op).init(params_of())
    hints = get_type_hints(type(state.compressed), include_extras=True)
    inner = get_type_hints(type(state.compressed.feedback), include_extras=True)
    rules = [hints["feedback"], inner["residual"]]  # the outer one holds
    marks = next(r.__metadata__ for r in rules if hasattr(r, "__metadata__"))
    assert marks[0] == rule


def test_every_exchange_has_a_name_of_all_reduce():
    for name in EXCHANGES:
        axes = ("host", "device") if name in TWO_AXES else "data"
        all_reduce(axes, algorithm=name, compressor=compression.identity())


def test_on_cpu_a_bucket_waits_for_the_one_before_it():
    tx: Any = all_reduce("data", compressor=compression.quantize(8), bucket_bytes=64)
    mesh, leaves = helpers.mesh_of(2), ("v", "w", "x")
    params, state = relaxjax.init(tx, {k: jnp.zeros(16) for k in leaves}, mesh)

    def train_step(p, s, batch):
        updates, s = tx.update({k: batch[k][0] for k in batch}, s)
        return optax.apply_updates(p, updates), s, ()

    step = relaxjax.data_parallel(train_step, mesh)
    rows = {k: np.zeros((2, 16), np.float32) for k in leaves}
    module = parse(helpers.optimized_hlo(step.lower(params, state, rows)))
    sending = [b for b in module.computations.values() if any(map(is_collective, b))]
    (body,) = sending
    first, *later = [i for i in body if is_collective(i)]
    assert len(later) >= 2
    for one in later:
        assert first in needs(body, one)


def test_without_an_order_buckets_of_codes_wait_for_each_other_on_cpu_alone():
    """On a GPU the compiler may send the one while it packs the next."""

    def choices(order: Any) -> int:
        tx: Any = all_reduce("data", compressor=EF_SIGN, bucket_bytes=64, order=order)
        update = jax.vmap(lambda g: tx.update(g, tx.init(g))[0], axis_name="data")
        return str(jax.make_jaxpr(update)(tree(0))).count("platform_index")

    assert choices(None) > choices(["b", "w"])

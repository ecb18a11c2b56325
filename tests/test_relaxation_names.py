"""The table of relaxations and the grammar of their names."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import _names
from relaxjax._core._relaxation import Relaxation, Training
from relaxjax._core.foreign._spelling import GRAMMAR
from relaxjax._names import RELAXATIONS, parse
from relaxjax.compression._rows import COMPRESSORS, FEEDBACKS
from relaxjax.decentralized._rows import ROWS as GOSSIP_ROWS
from relaxjax.local_updates._rows import ROWS as LATER_ROWS
from tests import helpers

ONCE = {row.name for row in (*GOSSIP_ROWS, *LATER_ROWS)} - {"gossip", "local_sgd"}
WAITING = (  # not all has arrived yet
    "arc_top_k",
    "bounded_staleness",
    "delay",
    "lossy_push_sum",
)
SPELLINGS = [
    spelling
    for row in RELAXATIONS.values()
    for spelling in [row.name, *(f"{row.name}@{a}" for a in row.algorithms)]
    if not spelling.endswith("@two_level")  # for payloads only
    and (spelling == row.name or row.name not in ONCE)
]


def training(optimizer: Any, steps: int = 100) -> Training:
    return Training(optimizer, 0.5, steps, workers=2)


SPELLINGS += [f"all_reduce+{compressor}" for compressor in COMPRESSORS]
SPELLINGS += ["all_reduce+sign@hierarchical", "all_reduce+sign@two_level"]
SPELLINGS += ["local_sgd+quantize4+ef14", "diloco+quantize4", "delay+sign+ef14"]
SPELLINGS += ["one_bit_adam+quantize4+ef14"]
SPELLINGS += ["parameter_server+sign+ef14"]
SPELLINGS += ["gossip+quantize8", "gossip+sign@hypercube", "deep_squeeze+sign"]
# Optimizers themselves.
OPTIMIZERS = {x for x in SPELLINGS if x.startswith(("one_bit", "zero_one", "demo"))}
SPELLINGS += [f"all_reduce+sign+{feedback}@two_shot" for feedback in FEEDBACKS]


@pytest.mark.few(2)
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_builds_a_transformation_that_takes_a_step(spelling):
    axes = {"data": 2}
    if spelling.endswith(("@hierarchical", "@two_level")):
        axes = {"host": 2, "device": 1}
    mesh = relaxjax.emulate(axes)
    tx = parse(spelling).build(tuple(axes), training(optax.sgd(0.5)))
    start = {"w": jnp.arange(3.0), "m": jnp.zeros((32, 16))}
    params, state = relaxjax.init(tx, start, mesh)

    def train_step(params, state, batch):
        gradient = {"w": batch[0], "m": jnp.zeros_like(params["m"])}
        updates, state = tx.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, {}

    gradients = np.array([[2.0, 0, 4], [0, 4, 0]], np.float32)
    step = relaxjax.data_parallel(train_step, mesh)
    params, state, _ = step(params, state, gradients)
    model = relaxjax.consensus(params)
    assert np.isfinite(model["m"]).all()
    if spelling not in OPTIMIZERS and not spelling.startswith(WAITING):
        # A vector: whatever compresses, it stays as it is.
        expected = start["w"] - 0.5 * gradients.mean(axis=0)
        lossy = spelling == "dcd_psgd"  # what its code loses is lost
        np.testing.assert_allclose(model["w"], expected, atol=2e-2 if lossy else 1e-6)


def test_a_compressor_gets_the_matrices():
    tx: Any = parse("all_reduce+sign@two_shot").build(
        "data", training(optax.identity())
    )
    grads = {"w": jnp.array([[[3.0, 1.0]], [[5.0, -1.0]]]), "b": jnp.ones((2, 2))}
    grads["b"] = grads["b"] * jnp.array([1.0, 3.0])
    out = jax.vmap(lambda g: tx.update(g, tx.init(g))[0], axis_name="data")(grads)
    np.testing.assert_allclose(out["b"], [[1.0, 3.0]] * 2)
    # Each worker sends one element and serves the other, alone in its chunk: exact.
    np.testing.assert_allclose(out["w"], [[[4.0, 0.0]]] * 2)


@pytest.mark.parametrize("row", RELAXATIONS.values(), ids=lambda row: row.name)
def test_rows_are_one_line_each_and_periods_positive(row):
    assert row.summary
    assert "\n" not in row.summary
    assert len(row.summary) <= 60
    assert row.period is None or row.period >= 1


ALIKE = [row for row in RELAXATIONS.values() if not row.apart]


@pytest.mark.few(1)
@pytest.mark.parametrize("row", ALIKE, ids=lambda row: row.name)
def test_models_are_equal_after_each_step_unless_the_row_says_otherwise(row):
    tx = row.build("data", training(optax.sgd(0.5), steps=4))
    start = {"w": jnp.arange(3.0), "m": jnp.zeros((32, 16))}
    targets = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "m": np.random.default_rng(0).normal(size=(2, 32, 16)).astype(np.float32),
    }

    def pull(params, batch):
        return jax.tree.map(lambda x, target: x - target[0], params, batch)

    mesh = relaxjax.emulate(2)
    for params, _ in helpers.history(tx, pull, start, [targets] * 3, mesh):
        relaxjax.require_replicas(params)


def test_the_outer_step_is_as_told():
    tx: Any = parse("diloco").build(
        "data",
        training(optax.sgd(1.0)),
        sync_every=1,
        outer_learning_rate=0.5,
        outer_momentum=0.0,
    )
    x = jnp.array([1.0, 3.0])
    moved = jax.vmap(lambda x: tx.update(x, tx.init(0 * x), 0 * x)[0], axis_name="data")
    np.testing.assert_allclose(moved(x), [-1.0, -1.0])


def test_local_steps_begin_with_the_second_half_unless_told():
    tx = parse("post_local_sgd").build("data", training(optax.sgd(1.0), steps=8))
    mesh, x = relaxjax.emulate(2), jnp.zeros(4)
    each = [relaxjax.wire_bytes(tx, x, mesh, start=t) for t in (3, 4)]
    assert each == [16, 0]


def test_in_codes_gossip_takes_a_graph_that_stays():
    four = training(optax.sgd(1.0))._replace(workers=4)
    for name in ("gossip", "gossip+quantize8"):
        parse(name).build("data", four)
    with pytest.raises(ValueError, match="has 2 rounds"):
        parse("gossip+quantize8@one_peer_exponential").build("data", four)


def test_a_period_is_what_is_set_where_there_is_one():
    """Graphs take turns: what they send may differ between rounds."""
    assert parse("local_sgd").period() == 8
    assert parse("asynchronous_average").period(sync_every=3) == 3
    assert parse("noloco@base_graph").period(sync_every=3) is None


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("asynchronous_average", {"sync_every": 4, "delay": 3}),
        (
            "noloco@ring",
            {"sync_every": 4, "momentum": 0.1, "outer_learning_rate": 0.5, "pull": 0.9},
        ),
    ],
)
def test_options_of_what_goes_on_in_between(name, options):
    """Nothing is sent before the fourth step."""
    tx = parse(name).build("data", training(optax.sgd(1.0)), **options)
    x = jnp.zeros(4)
    sent = [relaxjax.wire_bytes(tx, x, relaxjax.emulate(2), start=t) for t in range(4)]
    assert sent == [0, 0, 0, 16]


@pytest.mark.long
def test_what_is_sent_first_may_be_left_as_it_is():
    """Of four matrices the last two; equal to the code on the others alone."""
    rng = np.random.default_rng(0)
    stacked = {f"w{i}": rng.normal(size=(2, 3, 4)).astype("f4") for i in range(4)}

    def run(**options):
        name = parse("all_reduce+quantize2@two_shot")
        tx = name.build("data", training(optax.identity()), **options)

        def one(u):
            return tx.update(u, tx.init(u))[0]

        return jax.vmap(one, axis_name="data")(stacked)

    part, whole = helpers.host(run(plain=0.5)), helpers.host(run())
    for k in ("w2", "w3"):
        mean = stacked[k].mean(axis=0)
        np.testing.assert_allclose(part[k][0], mean, rtol=1e-6, atol=1e-6)
        assert np.abs(whole[k][0] - mean).max() > 1e-2
    for k in ("w0", "w1"):
        assert np.abs(part[k][0] - stacked[k].mean(axis=0)).max() > 1e-2


@pytest.mark.parametrize(
    ("name", "plain", "message"),
    [
        ("all_reduce", 0.5, r"plain=0.5 is the share .* compressor=None: name one"),
        ("all_reduce+quantize8", 1.5, r"share=1.5 must be between 0"),
        ("all_reduce+quantize8", 1.0, r"plain=1 leaves no matrix for quantize8"),
    ],
)
def test_a_share_that_cannot_be(name, plain, message):
    def make():
        tx = parse(name).build("data", training(optax.sgd(1.0)), plain=plain)
        return tx.init({"w": jnp.zeros((3, 4))})

    with pytest.raises(ValueError, match=message):
        make()


def test_options_reach_the_transformation():
    tree = {"a": jnp.zeros(4), "b": jnp.zeros(4)}

    def groups(bucket_bytes: int | None) -> int:
        tx = parse("all_reduce@psum").build(
            "data", training(optax.sgd(1.0)), bucket_bytes=bucket_bytes
        )
        run = jax.make_jaxpr(lambda u: tx.update(u, tx.init(u)), axis_env=[("data", 2)])
        return helpers.psum_groups_of(run(tree))

    assert groups(None) == 1
    assert groups(16) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("allreduce", r"there is no relaxation 'allreduce'\..* There is .*all_reduce"),
        ("", r"there is no relaxation ''\..* There is .*all_reduce"),
        (
            "all_reduce@tree9",
            r"no algorithm of all_reduce 'tree9'\..* There is auto, .*psum, ring",
        ),
        ("all_reduce@", r"no algorithm of all_reduce ''"),
        (
            "all_reduce+zip",
            r"no compressor of all_reduce 'zip'\..* There is bf16, codebook2, ",
        ),
        ("all_reduce+", r"no compressor of all_reduce ''"),
    ],
)
def test_unknown_parts_are_refused_with_the_valid_ones(name, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse(name)
    assert GRAMMAR in str(caught.value)


def test_an_option_that_the_row_does_not_have_is_refused():
    with pytest.raises(ValueError, match="no option 'rank'; it has bucket_bytes"):
        parse("all_reduce").build("data", training(optax.sgd(1.0)), rank=2)


@pytest.fixture
def toy(monkeypatch):
    """A relaxation, a compressor and a feedback, added by one entry each."""
    made: list[Any] = []

    def build(axis_name, training, **parts):
        made.append((axis_name, parts))
        return optax.with_extra_args_support(training.optimizer)

    row = Relaxation(name="toy", summary="toy", build=build, compressors=True)
    monkeypatch.setattr(_names, "RELAXATIONS", {"toy": row})
    monkeypatch.setattr(_names, "COMPRESSORS", {"half": lambda: "half"})
    monkeypatch.setattr(_names, "FEEDBACKS", {"memory": lambda c: ("memory", c)})
    return made


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("toy", {}),
        ("toy+half", {"compressor": "half"}),
        ("toy+half+memory", {"compressor": ("memory", "half")}),
    ],
)
def test_one_entry_adds_a_relaxation_a_compressor_a_feedback(toy, name, parts):
    parse(name).build("data", training(optax.sgd(1.0)))
    assert toy == [("data", parts)]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("toy+half+what", r"no error feedback 'what'\..* There is memory"),
        ("toy+half+memory+memory", "names 2 error feedbacks"),
        ("toy@ring", r"no algorithm of toy 'ring'\..* There is none"),
    ],
)
def test_bad_compressor_chains_are_refused(toy, name, message):
    with pytest.raises(ValueError, match=message):
        parse(name)
    assert toy == []


def test_phases_end_before_training_does():
    freeze = parse("one_bit_adam")
    with pytest.raises(ValueError, match="freeze_step=100 is not before the end"):
        freeze.build("data", training(optax.identity()), freeze_step=100)


def test_servers_get_matrices_in_codes_and_vectors_as_they_are():
    params = {"m": jnp.zeros((64, 64)), "v": jnp.zeros(64)}
    sent = {}
    for spelling in ("parameter_server", "parameter_server+sign+ef14"):
        tx = parse(spelling).build("data", training(optax.sgd(0.5)))
        sent[spelling] = relaxjax.wire_bytes(tx, params, relaxjax.emulate(2))
    whole, coded = sent.values()
    assert whole == 4 * (64 * 64 + 64)
    assert coded == 2 * (64 * 64 // 2 // 8 + 4) + 4 * 64

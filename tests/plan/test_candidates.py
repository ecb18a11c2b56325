"""What a plan says about a relaxation is what it really sends and keeps."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest

import relaxjax
from relaxjax import compression, merges, plan, schedule, topology
from relaxjax._core._relaxation import Relaxation, Training
from relaxjax._names import RELAXATIONS, parse
from relaxjax.compression._rows import COMPRESSORS
from relaxjax.gradients.mean._exact_mean import ALGORITHMS
from relaxjax.plan._candidate import Candidate, sized
from relaxjax.plan._candidates import candidates
from relaxjax.plan._predict import predict
from relaxjax.plan._with_rule import with_rule
from relaxjax.topology._rows import TOPOLOGIES

FLAT = plan.Network(workers=4)
HOSTS = plan.Network(workers=8, per_host=4)
SHAPES = {"rest": (1, 10), "w0": (64, 64), "w1": (64, 64)}
MODEL = plan.Model(
    params={k: jax.ShapeDtypeStruct(s, jnp.float32) for k, s in SHAPES.items()},
    compute=1.0,
)
WIDER = plan.Model(params=[jnp.zeros((128, 96)), jnp.zeros(7)], compute=1.0)
"""For ranks that make no matrix of `MODEL` smaller."""

TRACED = {row.name for row in RELAXATIONS.values() if row.sends.kind == "traced"}
STATED = [c for c in candidates(FLAT) if c.relaxation not in TRACED]


def test_reasons_state_no_figure_that_the_row_states_too():
    """A row has its own bytes, for its workers; a share of something else misleads."""
    for c in candidates(HOSTS):
        assert "bytes" not in c.why, (c.relaxation, c.why)


def pasted(line: str) -> optax.GradientTransformation:
    """The transformation of a pasted line."""
    names: dict[str, Any] = {"relaxjax": relaxjax, "optax": optax, "jnp": jnp}
    names["optimizer"] = optax.adam(1e-3)
    exec(line, names)
    return names["tx"]


def sent(line: str, axes: int, network: plan.Network, steps: int, model: plan.Model):
    mesh = relaxjax.emulate(network.workers)
    if axes == 2:
        sizes = {"host": network.hosts, "device": network.per_host}
        mesh = relaxjax.emulate(sizes)
    return relaxjax.wire_bytes(pasted(line), model.params, mesh, steps=steps)


@pytest.mark.parametrize(
    "one",
    [c for c in candidates(FLAT) if c.relaxation in TRACED and c.tx[0] != "#"],
    ids=lambda c: c.relaxation,
)
def test_lines_of_rows_known_by_their_trace_send_what_is_predicted(one):
    """The optimizer's moments too, where they are averaged."""
    model = plan.Model(params=[jnp.zeros((64, 64))] * 2, compute=1.0)
    expected = sent(sized(one.tx, 2**20), 1, FLAT, one.every, model)
    predicted = predict(one, model, FLAT, 2**20).nbytes * one.every
    assert predicted == pytest.approx(expected, rel=0.02)


def check_bytes(c: Candidate, network: plan.Network, bucket: int, model: plan.Model):
    predicted = predict(c, model, network, bucket).nbytes * c.every
    expected = sent(sized(c.tx, bucket), c.axes, network, int(c.every), model)
    assert predicted == pytest.approx(expected, abs=0.5), c.label


@pytest.mark.few(2)
@pytest.mark.parametrize("c", STATED, ids=lambda c: c.label)
def test_bytes_are_those_of_the_line(c: Candidate):
    check_bytes(c, FLAT, 8 * 2**20, MODEL if c.fits(MODEL) else WIDER)


NARROW = plan.Model(
    params=[jnp.zeros((128, 96), jnp.bfloat16), jnp.zeros((64, 96))], compute=1.0
)
"""Gradients travel in their own dtype, and models in float32."""
BIASED = plan.Model(
    params={"a": jnp.zeros((128, 96)), "b": jnp.zeros(640)}, compute=1.0
)
"""A vector that is large enough to be seen."""
BIASED16 = plan.Model(
    params=jax.tree.map(lambda x: x.astype(jnp.bfloat16), BIASED.params), compute=1.0
)


NAMED = [c for c in STATED if not c.options.keys() - {"sync_every"} and c.tx[0] != "#"]


@pytest.mark.few(4)
@pytest.mark.parametrize("c", NAMED, ids=lambda c: c.label)
def test_bytes_of_biases_are_those_of_the_line_and_of_training(c: Candidate):
    """They are not coded: so was the quality measured."""
    check_bytes(c, FLAT, 8 * 2**20, BIASED)
    training = Training(optax.adam(1e-3), 1e-3, 100, FLAT.workers)
    built = parse(c.relaxation).build("data", training, **c.options)
    mesh, steps = relaxjax.emulate(FLAT.workers), int(c.every)
    line = pasted(sized(c.tx, 8 * 2**20))
    for model in (BIASED, BIASED16):
        expected = relaxjax.wire_bytes(built, model.params, mesh, steps=steps)
        assert relaxjax.wire_bytes(line, model.params, mesh, steps=steps) == expected


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "c", [c for c in STATED if not c.options], ids=lambda c: c.label
)
def test_bytes_of_narrow_params_are_those_of_the_line(c: Candidate):
    check_bytes(c, FLAT, 8 * 2**20, NARROW)
    assert predict(c, NARROW, FLAT, 8 * 2**20).memory == NARROW.nbytes * 4 + (
        4 * NARROW.size * c.keeps
    )


@pytest.mark.parametrize("name", ["local_sgd+quantize8", "diloco+sign+ef14"])
def test_biases_of_models_in_codes_travel_as_wide_as_models(name):
    """Also where params are of 16 bits."""
    params = jax.tree.map(lambda x: x.astype(jnp.bfloat16), BIASED.params)
    model = plan.Model(params=params, compute=1.0)
    c = next(c for c in STATED if c.relaxation == name and not c.options)
    training = Training(optax.adam(1e-3), 1e-3, 100, FLAT.workers)
    built, steps = parse(name).build("data", training), int(c.every)
    expected = relaxjax.wire_bytes(
        built, params, relaxjax.emulate(FLAT.workers), steps=steps
    )
    predicted = predict(c, model, FLAT, 8 * 2**20).nbytes * steps
    assert predicted == pytest.approx(expected, abs=0.5)


@pytest.mark.parametrize(
    "c", [c for c in candidates(HOSTS) if c.axes == 2][:6], ids=lambda c: c.label
)
def test_bytes_over_hosts(c: Candidate):
    check_bytes(c, HOSTS, 8 * 2**20, MODEL)


@pytest.mark.parametrize(
    "label",
    ["all_reduce", "all_reduce@ring", "all_reduce+quantize8@two_shot", "gossip@ring"],
)
def test_bytes_of_small_buckets(label: str):
    (c,) = [c for c in candidates(FLAT) if c.label == label]
    check_bytes(c, FLAT, 6000, MODEL)


RULES = {
    merges.clipped(): 3,
    merges.trimmed(1): 2,
    merges.centered_clip(1.0): 1,
    merges.nearest(1, merges.geometric_median()): 1,
}
BY_NAME = {rule.name: rule for rule in RULES}
RULED = [(c, few) for r, few in RULES.items() for c in with_rule(r, candidates(FLAT))]


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("clipped", "local_sgd@two_shot rank=8 bits=8"),
        ("centered_clip", "all_reduce"),
        ("nearest", "all_reduce+quantize8@two_shot"),
    ],
)
def test_bytes_of_each_kind_of_rule(name: str, label: str):
    """Weights for each factor, a row for the center, a matrix for each of two rules."""
    (c,) = [c for c, _ in RULED if (c.merge, c.label) == (BY_NAME[name], label)]
    check_bytes(c, FLAT, 8 * 2**20, MODEL if c.fits(MODEL) else WIDER)


@pytest.mark.parametrize("bucket_bytes", [2**14, 2**20])
def test_rules_by_distances_have_one_bucket_of_whatever_size(bucket_bytes):
    """A codebook travels once, where each bucket would have its own."""
    label = "all_reduce+codebook8@two_shot"
    (c,) = [c for c, _ in RULED if (c.merge, c.label) == (BY_NAME["nearest"], label)]
    assert "{bucket}" not in c.tx
    check_bytes(c, FLAT, bucket_bytes, MODEL)


@pytest.mark.parametrize("label", ["all_reduce", "local_sgd"])
def test_narrow_models_by_a_rule_travel_wide_and_gradients_do_not(label):
    (c,) = [c for c, _ in RULED if (c.merge, c.label) == (BY_NAME["trimmed"], label)]
    check_bytes(c, FLAT, 8 * 2**20, NARROW)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "c",
    [c for i, (c, few) in enumerate(RULED) if i % (6 // few) == 0],
    ids=lambda c: f"{c.merge.name}-{c.label}",
)
def test_bytes_by_a_rule_are_those_of_the_line(c: Candidate):
    check_bytes(c, FLAT, 8 * 2**20, MODEL if c.fits(MODEL) else WIDER)


def test_by_a_rule_all_is_ranked_that_can_merge_by_it():
    """A median has no sparse code, no feedback, and no sum; it waits for no length."""
    labels = {
        rule: {c.label for c in with_rule(rule, candidates(FLAT))} for rule in RULES
    }
    clipped, trimmed = labels[merges.clipped()], labels[merges.trimmed(1)]
    assert {"all_reduce", "local_sgd@two_shot rank=8 bits=8", "diloco"} <= clipped
    assert {"all_reduce", "all_reduce+quantize8@two_shot", "diloco"} <= trimmed
    assert trimmed < clipped
    refused = ["rank", "ef14", "top_k", "@ring", "gossip", "plain"]
    assert not [x for x in trimmed if any(word in x for word in refused)]
    usual = {c.label: c for c in candidates(FLAT)}
    for c in with_rule(merges.trimmed(1), candidates(FLAT)):
        assert c.keeps == usual[c.label].keeps + 1  # rows of all workers
        assert not any(m.native for m in c.messages(MODEL, FLAT, 2**20)), c.label
    for c in with_rule(merges.clipped(), candidates(FLAT)):
        assert c.keeps == usual[c.label].keeps


def test_a_length_is_known_when_all_gradients_are():
    """By coordinates, buckets leave before the backward pass has ended; else not."""
    network = plan.Network(workers=4, link=schedule.Link(0.0, 2.0**14))
    model = plan.Model(params=[jnp.zeros((64, 128))] * 8, compute=3.0)

    def seconds(rule: merges.Rule) -> float:
        rows = plan.rank(model, network, merge=rule, bucket_bytes=2**15).rows
        return next(row for row in rows if row.label == "all_reduce").seconds

    usual = plan.rank(model, network, bucket_bytes=2**15, quality="exact").rows
    plain = next(row for row in usual if row.label == "all_reduce@two_shot").seconds
    assert seconds(merges.median()) == pytest.approx(plain, rel=0.01)
    assert seconds(merges.clipped()) > plain + 1
    assert seconds(merges.geometric_median()) > plain + 1


def test_a_row_by_a_rule_becomes_its_transformation():
    row = plan.rank(MODEL, FLAT, merge=merges.trimmed(1), bucket_bytes=2**20).choice
    tx = plan.transformation(row, "data", optax.sgd(1.0), 4)
    sent = relaxjax.wire_bytes(tx, MODEL.params, relaxjax.emulate(4))
    assert sent == pytest.approx(row.prediction.nbytes, abs=0.5)
    assert row.told()["merge"] == {"merge": "trimmed", "b": 1}
    how: dict[str, Any] = {"network": FLAT, "compute": 1.0, "merge": merges.trimmed(1)}
    auto = plan.auto("data", optax.sgd(1.0), MODEL.params, **how)
    assert relaxjax.wire_bytes(auto, MODEL.params, relaxjax.emulate(4)) == sent
    word: Any = "median"
    with pytest.raises(TypeError, match="rank: merge"):
        plan.rank(MODEL, FLAT, merge=word)


BLOCKS = plan.Model(params=[jnp.zeros((64, 128))] * 3, compute=1.0)


@pytest.mark.few(2)
@pytest.mark.parametrize("label", ["sparse_loco", "streaming_diloco"])
def test_bytes_of_rows_that_state_nothing_are_traced(label: str):
    (c,) = [c for c in candidates(FLAT) if c.label == label]
    check_bytes(c, FLAT, 8 * 2**20, BLOCKS)


def row_of(name: str, build: Any, **parts: Any) -> Relaxation:
    return Relaxation(name=name, summary=f"{name}, in short", build=build, **parts)


def test_a_row_alone_is_ranked(monkeypatch: pytest.MonkeyPatch):
    """By its bytes and four rounds, after the backward pass; it keeps two copies."""

    def build(axis_name: Any, training: Training):
        twice = optax.scale_by_adam(), relaxjax.all_reduce(axis_name, algorithm="tree")
        return optax.chain(*twice, training.optimizer)

    monkeypatch.setitem(RELAXATIONS, "toy", row_of("toy", build))
    link = schedule.Link(latency=1.0, bandwidth=1000.0)
    network = plan.Network(workers=4, link=link, codec={"": 1.0})
    (row,) = [
        row
        for row in plan.rank(replace(BLOCKS), network, quality="unmeasured").rows
        if row.label == "toy"
    ]
    assert row.candidate.why == "toy, in short"
    assert row.candidate.keeps == 2
    assert row.tx.startswith(
        "# relaxjax train --relaxation toy; or tx = relaxjax.plan."
    )
    sent = relaxjax.wire_bytes(
        build("data", Training(optax.identity(), 0.0, 1, 4)),
        BLOCKS.params,
        relaxjax.emulate(4),
    )
    assert row.prediction.nbytes == sent
    assert row.seconds == pytest.approx(1.0 + 4.0 + sent / 1000)
    assert row.quality.name == "unmeasured"
    tx = plan.transformation(row, "data", optax.sgd(0.1), 4)
    assert relaxjax.wire_bytes(tx, BLOCKS.params, relaxjax.emulate(4)) == sent


def test_rows_that_have_no_average_step_are_not_ranked(
    monkeypatch: pytest.MonkeyPatch,
):
    """Nor those that cannot be built, or do not take the model."""

    def fails(*_: Any) -> Any:
        raise ValueError("not for this")

    def build(*_: Any):
        return optax.stateless(fails)

    for name, row in {
        "phases": row_of("phases", build, period=None),
        "lamb": row_of("lamb", build, parent="lamb"),
        "unbuilt": row_of("unbuilt", fails),
        "unfit": row_of("unfit", build),
    }.items():
        monkeypatch.setitem(RELAXATIONS, name, row)
    rows = plan.rank(replace(BLOCKS), FLAT, quality="unmeasured").rows
    assert not {"phases", "lamb", "unbuilt", "unfit"} & {row.label for row in rows}


def test_vectors_travel_as_they_are():
    """As the relaxation's name is built, for a model that has vectors."""
    params = {"w": jnp.zeros((16, 8)), "b": jnp.zeros(10)}
    model = plan.Model(params=params, compute=1.0)
    (c,) = [c for c in candidates(FLAT) if c.label == "all_reduce+quantize8@two_shot"]
    training = Training(optax.sgd(0.1), 0.1, 10, 4)
    tx = parse(c.label).build("data", training)
    expected = relaxjax.wire_bytes(tx, params, relaxjax.emulate(4))
    assert predict(c, model, FLAT, 2**20).nbytes == expected


@pytest.mark.few(2)
@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_partly_coded_as_the_name_is_built_and_as_the_line(share: float):
    params = {f"w{i}": jnp.zeros((64, 128)) for i in range(4)}
    model = plan.Model(params=params, compute=1.0)
    label = f"all_reduce+quantize8@two_shot plain={share:g}"
    (c,) = [c for c in candidates(FLAT) if c.label == label]
    check_bytes(c, FLAT, 2**20, model)
    training = Training(optax.sgd(0.1), 0.1, 10, 4)
    tx = parse(c.relaxation).build("data", training, **c.options)
    sent = relaxjax.wire_bytes(tx, params, relaxjax.emulate(4))
    assert sent == predict(c, model, FLAT, 2**20).nbytes
    plain = relaxjax.wire_bytes(
        relaxjax.all_reduce("data"), params, relaxjax.emulate(4)
    )
    coded = plan.rank(model, FLAT, quality="unmeasured").rows
    (whole,) = [r for r in coded if r.label == "all_reduce+quantize8@two_shot"]
    whole_bytes = whole.prediction.nbytes
    assert sent == pytest.approx(share * plain + (1 - share) * whole_bytes, abs=0.5)


@pytest.mark.long
def test_codes_are_not_paid_for_behind_the_backward_pass():
    """Half of the gradients are hidden either way; coding them takes the device."""
    model = plan.Model(
        params={f"w{i}": jnp.zeros((512, 512)) for i in range(8)}, compute=0.1
    )
    network = plan.Network(
        workers=4,
        link=schedule.Link(1e-5, 1.6e8),
        codec={"": 2e9},
        overlap=True,
    )
    rows = plan.rank(model, network, quality="unmeasured", bucket_bytes=2**20).rows
    seconds = {r.label: r.seconds for r in rows}
    name = "all_reduce+quantize8@two_shot"
    best = min(seconds[f"{name} plain={s:g}"] for s in (0.25, 0.5, 0.75))
    assert best < 0.95 * min(seconds["all_reduce"], seconds[name])


def test_nothing_to_split_is_not_ranked():
    lone = plan.Model(params={"w": jnp.zeros((64, 64))}, compute=1.0)
    rows = plan.rank(lone, FLAT, quality="unmeasured").rows
    assert not [r.label for r in rows if "plain" in r.label]


def test_every_name_is_one_that_training_knows():
    for c in [*candidates(FLAT), *candidates(HOSTS)]:
        options = parse(c.relaxation).row.options
        assert set(c.options) <= options, c.label


def test_every_algorithm_is_there():
    labels = {c.label for c in candidates(HOSTS)}
    assert labels >= {f"all_reduce@{name}" for name in ALGORITHMS}


def test_every_compressor_and_topology_is_there():
    labels = {c.label for c in candidates(plan.Network(workers=8))}
    bare = {label.partition("@")[0].partition("+")[2] for label in labels}
    assert {name.partition("+")[0] for name in bare} >= set(COMPRESSORS) - {"identity"}
    tails = {label.partition("@")[2] for label in labels if label.startswith("gossip")}
    assert tails >= set(TOPOLOGIES) - {"one_peer_exponential"}


def test_a_new_row_is_ranked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(COMPRESSORS, "halves", lambda: compression.quantize(4))
    monkeypatch.setitem(TOPOLOGIES, "both_ways", topology.ring)
    labels = {c.label for c in candidates(plan.Network(workers=5))}
    assert {"all_reduce+halves+ef14@two_shot", "gossip@both_ways"} <= labels


KEEPERS = ["all_reduce", "power_sgd rank=1", "gossip+quantize8", "local_sgd"]
KEEPERS += ["diloco+sign+ef14", "slow_momentum", "eager_diloco"]
KEEPERS += ["asynchronous_average", "delay"]


@pytest.mark.few(3)
@pytest.mark.parametrize("label", KEEPERS)
def test_what_is_kept(label: str):
    """Floats of the state beyond the optimizer's, for each param."""
    (c,) = [c for c in candidates(FLAT) if c.label == label]
    params = MODEL.params
    whole = {k: jnp.zeros(x.shape) for k, x in params.items()}
    _, state = relaxjax.init(pasted(sized(c.tx, 2**23)), whole, relaxjax.emulate(4))
    floats = [x for x in jax.tree.leaves(state) if jnp.issubdtype(x.dtype, jnp.float32)]
    copies = sum(x.size for x in floats) / 4 / MODEL.size
    assert copies == pytest.approx(2 + c.keeps, abs=0.02)  # and PowerSGD's factors


def test_degrees_of_large_topologies_are_those_of_small_ones():
    from relaxjax.plan._candidates import _DEGREES, degrees_of

    small = degrees_of(16)
    assert {name: degree(16) for name, degree in _DEGREES.items()} == {
        name: small[name] for name in _DEGREES
    }


def test_links_and_hosts_of_a_ring():
    """By hand: 4 workers, 3 chunks up and 3 down, 6 latencies, nothing hidden."""
    network = plan.Network(
        workers=4, link=schedule.Link(1.0, 100.0), overlap=False, codec={"": 1e9}
    )
    (c,) = [c for c in candidates(network) if c.label == "all_reduce@ring"]
    model = plan.Model(params={"w": jnp.zeros((10, 10))}, compute=5.0)
    assert predict(c, model, network, 2**20).seconds == pytest.approx(5 + 6 + 600 / 100)

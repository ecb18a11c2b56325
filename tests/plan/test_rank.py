"""Choices that a person can check: what is hidden, slow or allowed."""

import json
from dataclasses import replace
from typing import Any

import pytest

from relaxjax import merges, plan
from relaxjax.plan import _quality
from relaxjax.plan._candidates import candidates
from relaxjax.plan._predict import predict
from relaxjax.schedule import Link

SIZE = 25_000_000
ALWAYS = (
    "all_reduce",
    "all_reduce+quantize8@two_shot",
    "gossip",
    "gossip+quantize8",
    "local_sgd",
)


def network(gbps: float, latency: float = 5e-5, **more: object) -> plan.Network:
    link = Link(latency=latency, bandwidth=gbps * 1e9 / 8)
    return replace(plan.Network(workers=8, link=link), **more)


def model(compute: float = 0.3, size: int = SIZE) -> plan.Model:
    return plan.Model.of_size(size, compute=compute)


def by_label(found: plan.Ranking) -> dict[str, plan.Row]:
    return {row.label: row for row in found.rows}


@pytest.mark.long
def test_all_are_ranked_fastest_first():
    found = plan.rank(model(), network(1.0))
    seconds = [row.prediction.seconds for row in found.rows]
    assert seconds == sorted(seconds)
    assert by_label(found).keys() >= set(ALWAYS)


def test_on_a_fast_network_plain_is_best_and_it_says_so():
    found = plan.rank(model(), network(400.0), quality="unmeasured")
    assert found.choice.label == "all_reduce"
    assert found.verdict.startswith("Plain all-reduce is best here, or jax.jit of a ")
    assert found.choice.prediction.seconds == pytest.approx(0.3, rel=0.03)


def test_on_a_slow_network_bytes_count():
    found = by_label(plan.rank(model(), network(0.1)))
    step = {label: row.prediction.seconds for label, row in found.items()}
    assert step["all_reduce+quantize8@two_shot"] < 0.3 * step["all_reduce"]
    assert step["gossip+quantize8"] < step["gossip"] < step["all_reduce"]
    assert step["local_sgd"] < 0.2 * step["all_reduce"]


def test_where_latency_counts_few_neighbors_win():
    found = by_label(plan.rank(model(), network(400.0, latency=0.05)))
    step = {label: row.prediction.seconds for label, row in found.items()}
    assert step["gossip"] < step["all_reduce"] < step["all_reduce+quantize8@two_shot"]


def test_only_what_is_as_good_is_chosen():
    slow = network(0.01)
    any_ = plan.rank(model(), slow, quality="unmeasured")
    exact = plan.rank(model(), slow, quality="exact")
    assert any_.choice.label == any_.rows[0].label
    assert exact.choice.quality.name == "exact"
    assert [r.label for r in any_.rows] == [r.label for r in exact.rows]


def test_fewest_bytes():
    found = plan.rank(
        model(), network(1.0), criterion="fewest_bytes", quality="unmeasured"
    )
    least = min(row.prediction.nbytes for row in found.rows)
    assert found.choice.prediction.nbytes == least


def test_memory_is_a_bound_and_the_closest_is_named():
    need = 16 * SIZE
    found = plan.rank(model(), network(0.1), quality="unmeasured", memory=need)
    assert found.choice.prediction.memory <= need
    with pytest.raises(ValueError, match=r"closest is all_reduce.* Shard the model"):
        plan.rank(model(), network(0.1), quality="exact", memory=need / 2)


@pytest.mark.long
def test_one_worker_sends_nothing():
    found = plan.rank(model(), replace(network(1.0), workers=1))
    assert found.choice.label == "all_reduce"
    assert found.choice.prediction.nbytes == 0
    assert found.choice.prediction.seconds == 0.3


@pytest.mark.long
def test_without_overlap_messages_come_after_the_step():
    hidden, shown = network(10.0), network(10.0, overlap=False)
    for label in ("all_reduce", "all_reduce@ring", "gossip"):
        a = by_label(plan.rank(model(), hidden))[label].prediction
        b = by_label(plan.rank(model(), shown))[label].prediction
        assert b.seconds == pytest.approx(0.3 + b.messages)
        assert a.seconds < b.seconds


@pytest.mark.slow
def test_many_buckets_are_as_long_as_each_by_itself():
    """Grouped for speed, not for what they take."""
    small = plan.rank(model(), network(1.0), bucket_bytes=2**20)
    whole = plan.rank(model(), network(1.0), bucket_bytes=2**30)
    a, b = (by_label(r)["all_reduce@ring"].prediction for r in (small, whole))
    buckets = -(-4 * SIZE // 2**20)
    assert a.messages - b.messages == pytest.approx((buckets - 1) * 14 * 5e-5, rel=0.01)


@pytest.mark.slow
def test_the_best_of_several_buckets():
    sizes = (2**20, 2**23, 2**25)
    each = [by_label(plan.rank(model(), network(4.0), bucket_bytes=s)) for s in sizes]
    best = by_label(plan.rank(model(), network(4.0), bucket_bytes=sizes))
    for label in ALWAYS:
        least = min(found[label].prediction.seconds for found in each)
        assert least <= best[label].prediction.seconds <= 1.01 * least


@pytest.mark.slow
def test_bucket_sizes_are_searched_where_latency_costs():
    """125 M params, 8 workers, 1 Gbit/s, 50 ms: the best of the planner's own model."""
    large = plan.Model.of_size(125_000_000, compute=0.3)
    far = plan.Network(workers=8, link=Link(latency=0.05, bandwidth=1.25e8))
    found = plan.rank(large, far)
    usual = by_label(plan.rank(large, far, bucket_bytes=8 * 2**20))
    for row in (found.choice, by_label(found)["all_reduce"]):
        sizes = [*(2**k for k in range(20, 30)), 4 * large.size]
        each = [predict(row.candidate, large, far, size).seconds for size in sizes]
        assert row.prediction.seconds <= 1.1 * min(each)
        assert row.prediction.seconds < 0.5 * usual[row.label].prediction.seconds
    size = found.choice.prediction.bucket_bytes
    assert f"bucket_bytes={size}" in found.choice.tx


def test_a_bucket_that_is_not_usual_is_in_the_line():
    found = by_label(plan.rank(model(), network(4.0), bucket_bytes=2**20))
    assert "bucket_bytes=1048576" in found["all_reduce"].tx
    assert "bucket" not in by_label(plan.rank(model(), network(4.0)))["all_reduce"].tx


def test_json(tmp_path):
    found = plan.rank(model(), network(1.0), inputs={"params": SIZE})
    found.save(tmp_path / "plan.json")
    told = json.loads((tmp_path / "plan.json").read_text())
    assert told["inputs"] == {"params": SIZE}
    assert {"relaxation", "step_ms", "bytes_per_step", "quality", "why", "tx"} <= set(
        told["ranking"][0]
    )
    assert told["choice"] == found.choice.told()


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"criterion": "cheapest"}, "criterion='cheapest' is not one of fastest"),
        ({"quality": "good"}, "quality='good' is not one of exact"),
        ({"memory": float("nan")}, "memory=nan must be"),
        ({"bucket_bytes": 0}, "bucket_bytes=0 must be"),
    ],
)
def test_bad_wishes(how, says):
    with pytest.raises(ValueError, match=says):
        plan.rank(model(), network(1.0), **how)


@pytest.mark.parametrize("compute", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_models(compute):
    with pytest.raises(ValueError, match="compute="):
        plan.Model.of_size(10, compute=compute)
    with pytest.raises(ValueError, match="no elements"):
        plan.Model(params={}, compute=1.0)
    with pytest.raises(ValueError, match="params=0 must be"):
        plan.Model.of_size(0, compute=1.0)
    many: Any = 1.3e9
    with pytest.raises(ValueError, match=r"=1300000000.0 .*: params=1_300_000_000"):
        plan.Model.of_size(many, compute=1.0)


def test_classes_of_quality(monkeypatch: pytest.MonkeyPatch):
    def measured(**worse: float):
        return {task: {"worse": by, "seeds": 1} for task, by in worse.items()}

    rows = {
        "a": measured(digits=0.002, chars=0.009),
        "all_reduce+a": measured(digits=0.002, chars=0.009),
        "b": measured(digits=0.0, chars=0.02),
        "c": measured(digits=0.5),
        "d": measured(digits=-0.001),
        "f": measured(chars=1e9),
    }
    monkeypatch.setattr(_quality, "measurements", lambda: {"rows": rows})
    names = [plan.quality_of(label).name for label in "abcde"]
    assert names == ["equal", "close", "lossy", "unmeasured", "unmeasured"]
    assert plan.quality_of("f") == ("lossy", "chars diverged")
    assert plan.quality_of("all_reduce@tree").name == "exact"
    sent = plan.quality_of("all_reduce+a@two_shot")
    assert sent.evidence.startswith("digits +0.2 % (1 seed)")
    assert plan.quality_of("all_reduce+a@two_shot plain=0.5").name == "unmeasured"
    assert plan.quality_of("a@ring").name == "unmeasured"  # another topology


@pytest.mark.long
def test_a_model_is_ranked_as_if_for_the_first_time():
    """What it knows from other calls holds for their workers and hosts alone."""
    known, asked = model(), [{}, {"merge": merges.median()}, {"axes": 2}]
    (ring,) = [c for c in candidates(network(1.0)) if c.label == "all_reduce@ring"]
    for there in (
        network(1.0, per_host=2),
        network(1.0, per_host=4),
        network(0.1, per_host=4, joined=False),
        network(0.1, per_host=4, workers=16),
        network(0.1, latency=0.05, per_host=4),
    ):
        for how in asked:
            again = plan.rank(known, there, quality="unmeasured", **how)
            anew = plan.rank(model(), there, quality="unmeasured", **how)
            assert again.told() == anew.told()
        assert predict(ring, known, there, 2**20) == predict(
            ring, model(), there, 2**20
        )


def test_choices_are_those_of_each_link():
    def at(gbps: float, latency: float) -> str:
        return plan.rank(model(), network(gbps, latency)).choice.label

    grid: dict[str, Any] = {"gbps": (0.01, 400.0), "latency_ms": (0.05, 50.0)}
    there = network(1.0, psum=Link(1e-3, 1e7))
    expected = [[at(0.01, late), at(400.0, late)] for late in (5e-5, 5e-2)]
    assert plan.choices(model(), there, **grid) == expected


@pytest.mark.long
def test_winners_over_a_grid(tmp_path):
    grid = {"gbps": (0.01, 400.0), "latency_ms": (0.05,), "quality": "unmeasured"}
    ((slow, fast),) = plan.choices(model(), network(1.0), **grid)
    assert fast == "all_reduce"
    assert slow != "all_reduce"
    plan.winners(tmp_path / "winners.png", model(), network(1.0), **grid)
    assert (tmp_path / "winners.png").read_bytes().startswith(b"\x89PNG")


def test_a_notebook_shows_the_verdict_and_the_choice_in_bold():
    found = plan.rank(model(), network(1.0))
    html = found._repr_html_()
    assert html.startswith("<p>")
    assert html.count("<tr>") == len(found.rows) + 1
    assert f"<th>{found.choice.label}</th>" in html
    assert "optax.chain" in html
    for row in found.rows:
        figures = f"{1e3 * row.seconds:.4g}", f"{row.prediction.nbytes:,.0f}"
        tag = "th" if row is found.choice else "td"
        cells = (row.label, *figures, row.quality.name)
        assert "".join(f"<{tag}>{cell}</{tag}>" for cell in cells) in html
    bad = replace(found, verdict="<b>")._repr_html_()
    assert bad.startswith("<p>&lt;b&gt;</p>")


@pytest.mark.parametrize("size", [1, 17, 1000, 250_000_000, 600_000_000, 10**9])
def test_a_model_of_a_size_is_matrices_but_for_a_row_of_one(size):
    """Low rank sends a row whole: it must not be a good part of the model."""
    found = plan.Model.of_size(size, compute=1.0)
    assert found.size == size
    side = max(x.shape[1] for x in found.leaves)
    assert sum(x.size for x in found.leaves if 1 in x.shape) < 2 * side
    assert all(x.shape[1] == side for x in found.leaves if 1 not in x.shape)


def test_what_low_rank_sends_grows_as_the_root_of_the_size():
    """Within a factor of two, as the sides of the matrices are powers of two."""
    for name in ("power_sgd", "acp_sgd"):
        shares = []
        for size in (250_000_000, 600_000_000, 10**9, 2 * 10**9):
            of = plan.Model.of_size(size, compute=0.3)
            found = plan.predicted(name, of, network(1.0), {"rank": 1})
            assert found is not None
            shares.append(found.nbytes / size**0.5)
        assert max(shares) < 2 * min(shares)

"""Rules of controllers: golden values, laws, brute force, and what they refuse."""

import itertools
from typing import Any

import numpy as np
import pytest

from relaxjax import controllers
from relaxjax.controllers import _allocation, _l_greco

SIZES = [(8, 4, 2), (80, 40, 20), (8, 4, 2)]
ERRORS = [(0, 4, 9), (0, 1, 3), (0, 1, 6)]


def decided(controller: controllers.Controller, readings: Any, every: int = 10) -> list:
    """Levels after each reading, with that of the start."""
    record = controller.init()
    for k, told in enumerate(readings, 1):
        record = controller.update(record, k * every, told)
    return [row.level for row in record.decisions]


def losses(values: Any, rates: Any = None) -> list[dict[str, float]]:
    rates = [None] * len(values) if rates is None else rates
    return [
        {"loss": x} | ({} if rate is None else {"learning_rate": rate})
        for x, rate in zip(values, rates, strict=True)
    ]


def norms(*rows: Any) -> list[dict[str, Any]]:
    return [{"norms": dict(zip("abcde", row, strict=False))} for row in rows]


def test_golden_values_of_accordion():
    found = decided(
        controllers.accordion(1, 2), norms([10.0] * 5, [4.0, 5.0, 6.0, 14.0, 15.0])
    )
    assert found[:2] == [2, dict.fromkeys("abcde", 2)]
    assert list(found[2].values()) == [2, 2, 1, 1, 2]


def test_accordion_asks_for_much_under_a_doubled_norm_and_after_nothing():
    doubled = norms(*([x * 2.0**k for x in (1, 3, 0)] for k in range(4)))
    for level in decided(controllers.accordion(1, 4), doubled)[1:]:
        assert level == {"a": 4, "b": 4, "c": 4}


def test_accordion_asks_for_much_after_the_rate_fell():
    rows = norms([1.0], [1.0], [1.0], [1.0])
    for told, rate in zip(rows, (0.1, 0.1, 0.01, 0.01), strict=True):
        told["learning_rate"] = rate
    found = decided(controllers.accordion(1, 4), rows)
    assert [x["a"] for x in found[1:]] == [4, 1, 4, 1]


def test_between_accordions_thresholds_a_leaf_stays_as_it_is():
    rows = norms([10.0], [10.0], [16.0], [28.8], [46.1], [46.1])
    found = decided(controllers.accordion(1, 4, below=0.5, above=0.75), rows)
    assert [x["a"] for x in found[1:]] == [4, 1, 1, 4, 4, 1]


def test_golden_values_of_ada_comm():
    shares = (1, 0.64, 0.25, 0.05, 0.009)
    found = decided(controllers.ada_comm(10), losses([3.0 * x for x in shares]))
    assert found[1:] == [10, 8, 5, 3, 1]
    rates = (0.1, 0.01)
    assert decided(controllers.ada_comm(10), losses([4, 1], rates))[-1] == 16
    assert decided(controllers.ada_comm(10, most=12), losses([4, 1], rates))[-1] == 12


def test_ada_comm_shortens_where_the_loss_does_not_say_so():
    flat = losses([2.0] * 6)
    assert decided(controllers.ada_comm(10), flat) == [10, 10, 5, 3, 2, 1, 1]
    assert decided(controllers.ada_comm(10, shrink=1), flat) == [10] * 7
    rising = losses([2.0, 8.0])
    assert decided(controllers.ada_comm(10, shrink=1), rising)[-1] == 10


def test_ada_comm_sees_a_rate_that_fell_while_nothing_might_change():
    """32 is 10 times the root of what the rate fell by."""
    told = losses([4, 4, 4, 4], (0.1, 0.1, 0.01, 0.01))
    assert decided(controllers.ada_comm(10), told)[-2:] == [32, 16]
    assert decided(controllers.ada_comm(10, dwell=15), told) == [10, 10, 5, 5, 32]


@pytest.mark.parametrize("rates", [(0.0, 0.1), (0.1, 0.0), (0.0, 0.0)], ids=str)
def test_ada_comm_at_a_rate_of_nothing(rates):
    """F_0 and eta_0 before a warm-up has begun, or the end of a cosine."""
    last = decided(controllers.ada_comm(10, most=50), losses([4.0, 1.0], rates))[-1]
    assert last == (1 if rates[1] else 10)


def test_ada_comm_keeps_its_period_where_the_first_loss_is_0():
    told = losses([0.0, 1.0, 1.0], (0.1, 0.1, 0.01))
    assert decided(controllers.ada_comm(10), told)[1:] == [10, 10, 10]


@pytest.mark.parametrize(
    ("budget", "size", "chosen"),
    [
        (0, 96, [0, 0, 0]),
        (2, 52, [0, 1, 1]),
        (5, 32, [0, 2, 1]),
        (9, 28, [1, 2, 1]),
        (18, 24, [2, 2, 2]),
    ],
)
def test_golden_values_of_the_allocation(budget, size, chosen):
    assert controllers.allocation(SIZES, ERRORS, budget) == chosen
    assert sum(row[c] for row, c in zip(SIZES, chosen, strict=True)) == size


@pytest.mark.parametrize("seed", range(20))
def test_the_allocation_is_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    layers = rng.integers(1, 5)
    sizes = [rng.integers(1, 50, rng.integers(1, 5)).tolist() for _ in range(layers)]
    errors = [rng.random(len(s)).tolist() for s in sizes]
    budget = layers * rng.choice([0.05, 0.3, 0.5])
    found = controllers.allocation(sizes, errors, budget)
    best = all_within(sizes, errors, budget)
    assert (found is None) == (not best)
    if found:
        assert total(errors, found) <= budget
        assert total(sizes, found) == min(best)


def all_within(sizes: Any, errors: Any, budget: float) -> list[int]:
    """The sizes of all choices within the budget."""
    each = itertools.product(*(range(len(s)) for s in sizes))
    return [total(sizes, c) for c in each if total(errors, c) <= budget]


def total(rows: Any, places: Any) -> Any:
    return sum(row[c] for row, c in zip(rows, places, strict=True))


def test_a_front_that_is_cut_stays_within_the_budget_and_near_the_best(monkeypatch):
    rng = np.random.default_rng(1)
    sizes, errors = rng.integers(1, 1000, (12, 6)), rng.random((12, 6))
    exact = controllers.allocation(sizes.tolist(), errors.tolist(), 3.0)
    monkeypatch.setattr(_allocation, "MOST", 6)
    found = controllers.allocation(sizes.tolist(), errors.tolist(), 3.0)
    assert total(errors, found) <= 3.0
    assert total(sizes, exact) <= total(sizes, found) <= 1.5 * total(sizes, exact)
    assert found != exact
    monkeypatch.setattr(_allocation, "MOST", 1)
    assert controllers.allocation([(8, 2, 4)], [(0.0, 0.5, 0.2)], 1.0) == [1]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("alpha", [0.7, 1.0, 2.0])
def test_l_greco_stays_within_the_error_of_one_rank_and_sends_no_more(seed, alpha):
    rng = np.random.default_rng(seed)
    layers = {f"w{k}": tuple(rng.integers(6, 40, 2).tolist()) for k in range(5)}
    matrices = {
        k: rng.normal(size=(n, 1)) * rng.normal(size=(n, m)) * 3.0 ** rng.integers(4)
        for k, (n, m) in layers.items()
    }

    def both(ranks: Any) -> Any:
        lost = sum(controllers.rank_errors(matrices[k], [ranks[k]])[0] for k in layers)
        return lost, sum(ranks[k] * sum(layers[k]) for k in layers)

    ranks = range(2, 9)
    told = {
        k: controllers.rank_errors(m, sorted({min(r, *layers[k]) for r in ranks}))
        for k, m in matrices.items()
    }
    found = controllers.l_greco(layers, 4, alpha=alpha)
    level = decided(found, [{"errors": told}])[-1]
    (lost, size), (budget, most) = both(level), both(dict.fromkeys(layers, 4))
    assert lost <= alpha * budget * (1 + 1e-9)
    assert size <= most or alpha < 1


def test_l_greco_takes_one_rank_where_what_is_found_sends_more(monkeypatch):
    monkeypatch.setattr(_l_greco, "allocation", lambda *_: [3, 3])
    told = [{"errors": {k: [4.0, 3.0, 2.0, 1.0] for k in "ab"}}]
    layers = dict.fromkeys("ab", (9, 9))
    assert decided(controllers.l_greco(layers, 2), told)[-1] == {"a": 2, "b": 2}


def test_errors_of_ranks_are_those_of_the_best_approximation():
    rng = np.random.default_rng(3)
    batch = rng.normal(size=(2, 6, 4))
    u, s, v = np.linalg.svd(batch, full_matrices=False)
    for r in range(5):
        best = (u[..., :r] * s[:, None, :r]) @ v[:, :r]
        expected = np.linalg.norm(batch - best)
        assert controllers.rank_errors(batch, [r])[0] == pytest.approx(expected)


def test_a_reading_that_trembles_about_a_threshold_moves_the_level_once():
    rule = controllers.thresholds("r", (4, 8, 16), up=0.7, down=0.3)
    told = [{"r": x} for x in (0.69, 0.71, 0.69, 0.5, 0.31, 0.29, 0.31, 0.0, 0.0)]
    assert decided(rule, told) == [4, 4, 8, 8, 8, 8, 4, 4, 4, 4]
    top = controllers.thresholds("r", (4, 8), up=0.7, down=0.3, start=8)
    assert decided(top, [{"r": 1.0}] * 2) == [8, 8, 8]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: controllers.accordion(0, 2), "low=0 must be a whole number, 1"),
        (
            lambda: controllers.accordion(1, 2, below=0.5, above=0.4),
            "above=0.4 must be",
        ),
        (lambda: controllers.ada_comm(0), "start=0 must be a whole number, 1 or more"),
        (lambda: controllers.ada_comm(8, most=4), "most=4 must be a whole number, 8"),
        (lambda: controllers.ada_comm(8, shrink=0), r"shrink=0 must be in \(0, 1\]"),
        (lambda: controllers.l_greco({}, 4), "must name one or more"),
        (
            lambda: controllers.l_greco({"w": (4, 4)}, 4, alpha=0),
            "alpha=0 must be more",
        ),
        (lambda: controllers.allocation([], [], 1), "of one layer or more"),
        (lambda: controllers.allocation([(1,)], [(1, 2)], 1), "with as many choices"),
        (lambda: controllers.allocation([(1,)], [(-1,)], 1), "must be 0 or more"),
        (lambda: controllers.allocation([(1,)], [(1,)], float("nan")), "budget=nan"),
        (lambda: controllers.thresholds("r", (), up=1, down=0), "must be one or more"),
        (lambda: controllers.thresholds("r", (4, 4), up=1, down=0), "all different"),
        (
            lambda: controllers.thresholds("r", (4, 8), up=1, down=1),
            "down=1 must be less",
        ),
        (
            lambda: controllers.thresholds("r", (4, 8), up=1, down=0, start=5),
            r"start=5 is not one of levels=\[4, 8\]",
        ),
    ],
)
def test_refuses_numbers_that_cannot_be(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_l_greco_refuses_errors_of_other_ranks():
    rule = controllers.l_greco({"w": (8, 8)}, 2)
    with pytest.raises(ValueError, match=r"errors of 'w' must be those of its ranks"):
        decided(rule, [{"errors": {"w": [1.0, 2.0]}}])

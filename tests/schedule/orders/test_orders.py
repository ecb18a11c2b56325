"""Laws of the orders, and slow references for each."""

import functools
import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxjax.schedule import (
    Graph,
    best,
    bounds,
    fifo,
    gap,
    layer_order,
    local_search,
    lower_bound,
    makespan,
    optimum,
    properties,
    random_graph,
    random_order,
    series_parallel_order,
    smallest_first,
    tac,
    tic,
)
from relaxjax.schedule.orders._local_search import _descend
from relaxjax.schedule.orders._makespan import prepare
from relaxjax.schedule.orders._properties import ticks

FAMILIES = ["random", "towers", "pairs", "chain"]
laws = settings(derandomize=True, deadline=None, max_examples=60)


@st.composite
def graphs(draw, most=6):
    family = draw(st.sampled_from(FAMILIES))
    size = draw(st.integers(2, most))
    return random_graph(family, recvs=size, seed=draw(st.integers(0, 10_000)))


@st.composite
def tangles(draw):
    """Operations that need any recvs, whose times are small, so that ties are many."""
    times = st.integers(0, 5).map(float)
    recvs = {name: draw(times) for name in "abcde"[: draw(st.integers(2, 5))]}
    some = st.lists(st.sampled_from([*recvs]), max_size=4, unique=True)
    sizes = range(draw(st.integers(1, 7)))
    return Graph(recvs, {f"op{i}": (draw(times), draw(some)) for i in sizes})


def timeline_reference(graph, order):
    """Makespan by walking over time, one unit of work after the other."""
    arrival, now = {}, 0.0
    for name in order:
        now += graph.recvs[name]
        arrival[name] = now
    done, now = {}, 0.0
    while len(done) < len(graph.ops):
        known = arrival | done
        starts = {
            op: max([now, *(known[need] for need in needs)])
            for op, (_, needs) in graph.ops.items()
            if op not in done and all(need in known for need in needs)
        }
        op = min(starts, key=starts.__getitem__)
        done[op] = now = starts[op] + graph.ops[op][0]
    return max([now, *arrival.values()])


def renamed(graph, names):
    return Graph(
        recvs={names[n]: t for n, t in graph.recvs.items()},
        ops={
            o: (t, [names.get(need, need) for need in needs])
            for o, (t, needs) in graph.ops.items()
        },
    )


@laws
@given(graphs(), st.randoms(use_true_random=False))
def test_makespan_is_what_walking_over_time_gives(graph, rng):
    order = list(graph.recvs)
    rng.shuffle(order)
    assert makespan(graph, order) == timeline_reference(graph, order)


@laws
@given(graphs())
def test_batched_makespans_equal_single_ones(graph):
    orders = list(itertools.islice(itertools.permutations(range(len(graph.recvs))), 50))
    names = list(graph.recvs)
    single = [makespan(graph, [names[i] for i in order]) for order in orders]
    assert prepare(graph).makespans(np.array(orders)).tolist() == single


def test_brute_force_agrees_with_optimum_on_300_graphs():
    orders = {n: np.array(list(itertools.permutations(range(n)))) for n in range(2, 8)}
    for seed in range(300):
        graph = random_graph(FAMILIES[seed % 4], recvs=2 + seed % 6, seed=seed)
        least = prepare(graph).makespans(orders[2 + seed % 6]).min()
        assert makespan(graph, optimum(graph)) == least, seed


def test_ops_that_need_nothing_run_first():
    graph = Graph(
        recvs={"a": 2, "b": 2},
        ops={"warm-up": (3, []), "x": (1, ["a"]), "y": (1, ["warm-up", "b"])},
    )
    assert makespan(graph, ["a", "b"]) == timeline_reference(graph, ["a", "b"]) == 5
    assert prepare(graph).makespans(np.array([[0, 1]])) == [5]
    assert makespan(graph, optimum(graph)) == 5
    assert makespan(graph, best(graph)) == 5


@laws
@given(graphs())
def test_chain_of_bounds(graph):
    lower, upper = bounds(graph)
    spans = [makespan(graph, f(graph)) for f in (optimum, best, tac)]
    assert lower <= lower_bound(graph) <= spans[0] <= spans[1] <= spans[2] <= upper


@laws
@given(graphs(), st.randoms(use_true_random=False))
def test_every_baseline_is_between_optimum_and_upper_bound(graph, rng):
    least = makespan(graph, optimum(graph))
    for order in (
        tic(graph),
        fifo(graph),
        layer_order(graph),
        smallest_first(graph),
        random_order(graph, seed=rng.randint(0, 99)),
    ):
        assert sorted(order) == sorted(graph.recvs)
        assert least <= makespan(graph, order) <= bounds(graph).upper


@laws
@given(graphs(), st.randoms(use_true_random=False))
def test_permuting_the_input_changes_nothing(graph, rng):
    recvs, ops = list(graph.recvs.items()), list(graph.ops.items())
    rng.shuffle(recvs)
    rng.shuffle(ops)
    other = Graph(recvs=dict(recvs), ops=dict(ops))
    assert tac(other) == tac(graph)
    assert tic(other) == tic(graph)
    assert layer_order(other) == layer_order(graph)
    assert smallest_first(other) == smallest_first(graph)
    assert optimum(other) == optimum(graph)
    assert best(other) == best(graph)


@pytest.mark.parametrize("seed", range(3))
def test_permuting_the_input_changes_no_search(seed):
    """Beyond the exact methods: 20 recvs and local search."""
    graph = random_graph("pairs", recvs=20, seed=seed)
    rng = random.Random(seed)
    recvs, ops = list(graph.recvs.items()), list(graph.ops.items())
    rng.shuffle(recvs)
    rng.shuffle(ops)
    other = Graph(recvs=dict(recvs), ops=dict(ops))
    assert best(other, evaluations=2000) == best(graph, evaluations=2000)


@laws
@given(graphs(), st.randoms(use_true_random=False))
def test_the_chain_of_bounds_holds_for_any_times(graph, rng):
    """Up to the rounding of sums."""
    odd = Graph(
        recvs={n: t * rng.random() * 1e-3 for n, t in graph.recvs.items()},
        ops={n: (t * rng.random() * 1e-3, m) for n, (t, m) in graph.ops.items()},
    )
    lower, upper = bounds(odd)
    spans = [makespan(odd, f(odd)) for f in (optimum, best, tac)]
    chain = [lower, lower_bound(odd), *spans, upper]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(chain))


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(8))
def test_best_with_pushes_is_optimal_on_small_graphs(seed, permutations_of):
    """A training step: the loss needs everything, each gradient is pushed."""
    forward = random_graph("random", recvs=6, seed=seed)
    ops, last = dict(forward.ops), "loss"
    ops["loss"] = (1.0, list(forward.ops))
    sends = {}
    for i, name in enumerate(forward.recvs):
        ops[f"back {i}"] = (float(i + 1), [last])
        last = f"back {i}"
        sends[name] = (forward.recvs[name], [last])
    graph = Graph(forward.recvs, ops, sends)
    least = min(makespan(graph, order) for order in permutations_of(graph))
    assert makespan(graph, best(graph)) == least
    assert lower_bound(graph) <= least


@laws
@given(graphs())
def test_renaming_changes_nothing(graph):
    names = {n: f"layer/{i}/kernel" for i, n in enumerate(sorted(graph.recvs))}
    other = renamed(graph, names)
    assert tac(other) == [names[n] for n in tac(graph)]
    assert tic(other) == [names[n] for n in tic(graph)]


@laws
@given(graphs(), st.sampled_from([1e-6, 0.1, 3.0, 7.3, 1e9]))
def test_scaling_times_leaves_the_order(graph, k):
    other = graph.scaled(recvs=k, ops=k)
    assert tac(other) == tac(graph)
    assert tic(other) == tic(graph)


@laws
@given(graphs(), st.randoms(use_true_random=False))
def test_times_play_no_part_in_tic(graph, rng):
    assert tic(graph.scaled(recvs=rng.random(), ops=rng.random())) == tic(graph)


@laws
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1))
def test_tac_is_johnsons_rule_on_independent_transfers(times):
    graph = Graph(
        recvs={f"r{i}": m for i, (m, _) in enumerate(times)},
        ops={f"o{i}": (p, [f"r{i}"]) for i, (_, p) in enumerate(times)},
    )
    first = sorted((m, i) for i, (m, p) in enumerate(times) if m <= p)
    last = sorted(((p, i) for i, (m, p) in enumerate(times) if m > p), reverse=True)
    johnson = [f"r{i}" for _, i in first + last]
    assert makespan(graph, tac(graph)) == makespan(graph, johnson)


@laws
@given(graphs(most=9) | tangles())
def test_tac_takes_a_recv_that_no_other_precedes(graph):
    """Against the comparator written out, on freshly computed properties."""
    outstanding = list(graph.recvs)
    for chosen in tac(graph):
        p = properties(graph, outstanding=outstanding)
        free = [
            a
            for a in outstanding
            if not any(
                min(p[a].P, p[b].M) < min(p[b].P, p[a].M) for b in outstanding if b != a
            )
        ]
        assert chosen in free
        outstanding.remove(chosen)


@settings(laws, max_examples=200)
@given(graphs(most=9) | tangles())
def test_tac_is_its_documented_scan(graph):
    """Every step on freshly computed properties, the scan written out."""
    outstanding, order = layer_order(graph), []
    while outstanding:
        p = properties(graph, outstanding=outstanding)
        chosen, *others = sorted(outstanding, key=lambda r: p[r].M_plus)
        for r in others:
            if min(p[chosen].P, p[r].M) < min(p[r].P, p[chosen].M):
                chosen = r
        order.append(chosen)
        outstanding.remove(chosen)
    assert tac(graph) == order


@laws
@given(graphs(most=9) | tangles())
def test_the_published_sort_is_written_out(graph):
    """The released program: sort with its comparator, take the first, start again."""

    def compare(first, second):
        a, b = min(second.P, first.M), min(first.P, second.M)
        if a == b:
            a, b = first.M_plus, second.M_plus
        return (a > b) - (a < b)

    outstanding, order = list(graph.recvs), []
    while outstanding:
        p = properties(graph, outstanding=outstanding)
        key = functools.cmp_to_key(compare)
        order.append(sorted(outstanding, key=lambda r: key(p[r]))[0])
        outstanding.remove(order[-1])
    assert tac(graph, select="reference_sort") == order


def test_ties_go_to_the_first_used_whatever_its_name():
    graph = Graph(
        recvs={"a": 1, "z": 1},
        ops={"o1": (1, ["z"]), "o2": (1, ["o1", "a"])},
    )
    assert tic(graph) == layer_order(graph) == smallest_first(graph) == ["z", "a"]


def test_times_without_small_ratios_stay_exact():
    assert ticks([0.0, 1.0, 2**0.5]) == [0, 2**52, round(2**52 * 2**0.5)]
    a, b, c = ticks([3**0.5, 7**0.5, 3**0.5])
    assert a == c != b


def test_tac_breaks_ties_by_m_plus_then_depth_then_name():
    graph = Graph(
        recvs={"a10": 1, "a2": 1, "late": 1, "x": 1, "y": 1},
        ops={
            "wide": (1, ["a10", "a2", "late"]),
            "pair": (1, ["x", "y"]),
        },
    )
    assert tac(graph) == ["x", "y", "a2", "a10", "late"]


def test_tac_adds_up_operations_that_come_to_wait_for_the_same():
    """Once A has arrived, two operations of 1 s each wait for B and C alone."""
    ops = {"a": (1, ["A"]), "abc": (1, ["A", "B", "C"]), "bc": (1, ["B", "C"])}
    graph = Graph({"A": 1, "B": 1, "C": 10, "D": 6}, ops | {"bd": (5, ["B", "D"])})
    # Of the last two, min(P_C, M_D) = 2 < min(P_D, M_C) = 5.
    assert tac(graph) == ["A", "B", "D", "C"]


def test_m_plus_counts_only_what_has_not_arrived():
    """Once A has arrived, B and C cost 2 s together, and D and E 4 s."""
    ops = {"a": (1, ["A"]), "abc": (1, ["A", "B", "C"]), "de": (1, ["D", "E"])}
    graph = Graph({"D": 2, "E": 2, "A": 9, "B": 1, "C": 1}, ops)
    assert tac(graph) == ["A", "B", "C", "D", "E"]


def test_tac_with_the_published_sort_agrees_where_nothing_ties():
    agreed = 0
    for seed in range(40):
        graph = random_graph("chain", recvs=8, seed=seed)
        agreed += tac(graph, select="reference_sort") == tac(graph)
    assert agreed == 40


def test_series_parallel_orders_are_optimal():
    for seed in range(150):
        family = ("towers", "chain")[seed % 2]
        graph = random_graph(family, recvs=3 + seed % 8, seed=seed)
        order = series_parallel_order(graph)
        assert order is not None
        assert makespan(graph, order) == makespan(graph, optimum(graph)), seed


@pytest.mark.parametrize("seed", range(60))
def test_rivers_are_series_parallel(seed):
    """Random forests that join downstream, some operations free of cost."""
    rng = random.Random(seed)
    ops: dict[str, tuple[float, list[str]]] = {}

    def join(recvs):
        if len(recvs) > 1 and rng.random() < 0.8:
            cut = rng.randint(1, len(recvs) - 1)
            needs = [join(recvs[:cut]), join(recvs[cut:])]
        else:
            needs = list(recvs)
        ops[f"o{len(ops)}"] = (float(rng.randint(0, 9)), needs)
        return f"o{len(ops) - 1}"

    names = [f"r{i}" for i in range(rng.randint(2, 10))]
    cut = rng.randint(1, len(names))
    join(names[:cut])
    if cut < len(names):
        join(names[cut:])
    graph = Graph(recvs={n: float(rng.randint(0, 9)) for n in names}, ops=ops)
    order = series_parallel_order(graph)
    assert order is not None
    assert makespan(graph, order) == makespan(graph, optimum(graph))


def test_series_parallel_up_to_400_jobs():
    deep = random_graph("chain", recvs=200)  # 200 recvs and as many sets of recvs
    order = series_parallel_order(deep)
    assert order is not None
    assert makespan(deep, order) == makespan(deep, tac(deep))
    assert series_parallel_order(random_graph("chain", recvs=201)) is None


def test_shared_pairs_are_not_series_parallel():
    graph = Graph(
        recvs={"a": 1, "b": 1, "c": 1, "d": 1},
        ops={"ab": (1, ["a", "b"]), "bc": (1, ["b", "c"]), "cd": (1, ["c", "d"])},
    )
    assert series_parallel_order(graph) is None


@pytest.mark.slow
def test_local_search_closes_most_of_tacs_gap():
    """Beyond the exact methods, against the exact optimum of 16 recvs."""
    tacs, bests = [], []
    for seed in range(12):
        graph = random_graph("random", recvs=16, seed=seed)
        least = makespan(graph, optimum(graph))
        tacs.append(makespan(graph, tac(graph)) / least - 1)
        searched = local_search(graph, [tac(graph)], evaluations=4000)
        bests.append(makespan(graph, searched) / least - 1)
        assert makespan(graph, best(graph)) <= makespan(graph, tac(graph))
    assert sum(tacs) > 0
    assert sum(bests) <= 0.4 * sum(tacs)


def test_best_with_an_objective_is_never_worse_than_tac():
    graph = random_graph("pairs", recvs=6, seed=3)

    def makespan_reversed(order):
        return makespan(graph, order[::-1])

    improved = best(graph, objective=makespan_reversed, evaluations=2000)
    assert makespan_reversed(improved) < makespan_reversed(tac(graph))


def test_descent_goes_down_from_any_start():
    for seed in range(10):
        graph = random_graph("random", recvs=16, seed=seed)
        names = list(graph.recvs)
        start = np.array([names.index(n) for n in random_order(graph, seed=seed)])
        prepared = prepare(graph)
        order, seconds, used = _descend(prepared, start, 3000)
        assert used <= 3000
        assert seconds == prepared.makespans(order[None])[0]
        assert seconds < 0.95 * prepared.makespans(start[None])[0]


def test_seeds_make_a_difference():
    graph = random_graph("chain", recvs=9)
    assert random_order(graph, seed=1) == random_order(graph, seed=1)
    assert random_order(graph, seed=1) != random_order(graph, seed=2)
    assert random_graph("chain", seed=1) == random_graph("chain", seed=1)
    assert random_graph("chain", seed=1) != random_graph("chain", seed=2)


def test_best_tries_no_more_orders_than_allowed():
    calls = []
    graph = random_graph("pairs", recvs=8, seed=1)
    best(graph, objective=lambda o: calls.append(o) or 1.0, evaluations=17)
    assert len(calls) == 17


def test_the_bound_knows_what_can_run_before_the_first_recv():
    graph = Graph(
        recvs={"a": 5, "b": 1},
        ops={"mask": (2, []), "x": (9, ["a"]), "y": (1, ["x", "mask", "b"])},
    )
    # mask 0-2, then nothing before a at 5: x 5-14, y 14-15.
    assert lower_bound(graph) == makespan(graph, ["a", "b"]) == 15


def test_graphs_without_recvs_or_without_ops():
    idle = Graph(recvs={}, ops={"o": (2, [])})
    for order in (tic, tac, best, optimum, fifo, layer_order, smallest_first):
        assert order(idle) == []
    assert series_parallel_order(idle) == []
    assert makespan(idle, []) == lower_bound(idle) == 2
    wire = Graph(recvs={"a": 1, "b": 2}, ops={})
    for order in (tic, tac, best, optimum):
        assert sorted(order(wire)) == ["a", "b"]
    assert makespan(wire, ["b", "a"]) == lower_bound(wire) == 3
    nothing = Graph(recvs={}, ops={})
    assert makespan(nothing, best(nothing)) == gap(nothing, 0.0) == 0


def test_the_gap_is_zero_at_the_bound():
    graph = random_graph("chain", recvs=2, seed=0)
    least = lower_bound(graph)
    assert gap(graph, least) == 0
    assert gap(graph, 1.5 * least) == pytest.approx(0.5)


def test_sends_leave_when_their_ops_are_done():
    """Two layers forward, two backward; the second push waits for the first."""
    graph = Graph(
        recvs={"w1": 2, "w2": 1},
        ops={
            "f1": (3, ["w1"]),
            "f2": (1, ["f1", "w2"]),
            "b2": (2, ["f2"]),
            "b1": (4, ["b2"]),
        },
        sends={"w2": (5, ["b2"]), "w1": (2, ["b1"])},
    )
    # w1 at 2, f1 2-5, f2 5-6, b2 6-8, b1 8-12; w2 leaves 8-13, w1 13-15.
    assert makespan(graph, ["w1", "w2"]) == 15
    # w2 at 1, w1 at 3: everything one second later.
    assert makespan(graph, ["w2", "w1"]) == 16
    assert bounds(graph) == (10, 20)
    # max(L=10, 3+10, 10+2, 7+8, longest path 2+3+1+2+5=13): pushes bind.
    assert lower_bound(graph) == 15
    assert best(graph) == ["w1", "w2"]


def test_ready_ops_run_in_the_graphs_order_when_there_are_sends():
    graph = Graph(
        recvs={"a": 1, "b": 1},
        ops={"wait": (1, ["b"]), "x": (5, ["a"]), "y": (1, ["a"])},
        sends={"g": (1, ["y"])},
    )
    # a at 1, x 1-6, then `wait` (first in the graph) 6-7, y 7-8, the push 8-9.
    assert makespan(graph, ["a", "b"]) == 9

"""Every graph: its weights, its gap as published, its permutations, its refusals."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxjax import topology
from relaxjax.topology import Topology

# Each graph, and numbers of workers that it exists for.
GRAPHS: dict[str, tuple[Callable[..., Topology], list[int]]] = {
    "ring": (topology.ring, [*range(1, 17), 1024]),
    "exponential": (topology.exponential, [*range(1, 17), 1024]),
    "star": (topology.star, [*range(1, 17), 100]),
    "chain": (topology.chain, [*range(1, 17), 1024]),
    "binary_tree": (topology.binary_tree, [*range(1, 17), 1024]),
    "complete": (topology.complete, [*range(1, 17), 64]),
    "hypercube": (topology.hypercube, [1, 2, 4, 8, 16, 1024]),
    "one_peer_exponential": (topology.one_peer_exponential, [*range(1, 17), 1024]),
    "one_peer_hypercube": (topology.one_peer_hypercube, [1, 2, 4, 8, 16, 1024]),
    "random_matching": (
        lambda n: topology.random_matching(n, seed=n, period=5),
        [*range(2, 17, 2), 1024],
    ),
    "shift_one": (topology.shift_one, [*range(2, 17, 2), 100]),
    "torus": (lambda n: topology.torus((n, n + 1)), [1, 2, 3, 4, 31]),
    "base_graph, 1": (topology.base_graph, [*range(1, 17), 1023]),
    "base_graph, 3": (lambda n: topology.base_graph(n, 3), [*range(1, 17), 1023]),
}
NO_NUMBER: Any = 2.5

graphs = pytest.mark.parametrize("name", GRAPHS)


def product(graph: Topology) -> np.ndarray:
    w = np.eye(graph.n)
    for round in range(graph.period):
        w = graph.matrix(round) @ w
    return w


@pytest.mark.few(4)
@graphs
def test_every_round_keeps_the_mean_and_equal_values(name):
    make, sizes = GRAPHS[name]
    for n in sizes:
        graph = make(n)
        assert graph.is_doubly_stochastic
        for w in graph.matrices:
            assert w.min() >= 0
            np.testing.assert_allclose(w.sum(axis=0), 1, atol=1e-12)
            np.testing.assert_allclose(w.sum(axis=1), 1, atol=1e-12)


@pytest.mark.few(5)
@graphs
def test_messages_are_the_matrix(name):
    """Each is a partial permutation, and there are as few as can be."""
    make, sizes = GRAPHS[name]
    for n in sizes[:16]:
        graph = make(n)
        for round in range(graph.period):
            w, messages = graph.matrix(round), graph.messages(round)
            found = np.diag(np.diag(w))
            for pairs, weights in messages:
                sources, targets = zip(*pairs, strict=True)
                assert len(set(sources)) == len(sources)
                assert len(set(targets)) == len(targets)
                for source, target in pairs:
                    assert found[target, source] == 0
                    found[target, source] = weights[target]
            np.testing.assert_array_equal(found, w)
            links = (w != 0) & ~np.eye(graph.n, dtype=bool)
            busiest = max(links.sum(axis=0).max(), links.sum(axis=1).max())
            assert len(messages) == busiest <= graph.degree


@given(st.integers(2, 9), st.integers(0, 2**32 - 1))
def test_any_links_fall_into_as_many_messages_as_the_largest_degree(n, seed):
    rng = np.random.default_rng(seed)
    w = rng.random((n, n)) * (rng.random((n, n)) < rng.random())
    w += np.diag(1 - w.sum(axis=0) + w.sum(axis=0).max())
    graph = topology.from_column_stochastic(w / w.sum(axis=0))
    links = (w != 0) & ~np.eye(n, dtype=bool)
    messages = graph.messages()
    assert sum(len(pairs) for pairs, _ in messages) == links.sum()
    degree = max(links.sum(axis=0).max(), links.sum(axis=1).max())
    assert len(messages) == degree
    for pairs, _ in messages:
        assert len({s for s, _ in pairs}) == len({t for _, t in pairs}) == len(pairs)


@pytest.mark.parametrize(
    ("graph", "second"),
    [
        (topology.ring(8), 0.80474),
        (topology.ring(16), 0.94925),
        (topology.ring(32), 0.98719),
        (topology.ring(64), 0.99679),
        (topology.torus((3, 3)), 0.4),
        (topology.torus((4, 4)), 0.6),
        (topology.torus((5, 5)), 0.72361),
        (topology.torus((8, 8)), 0.88284),
        (topology.hypercube(8), 0.5),
        (topology.hypercube(16), 0.6),
        (topology.hypercube(32), 0.66667),
        (topology.hypercube(64), 0.71429),
        (topology.exponential(8), 0.5),
        (topology.exponential(16), 0.6),
        (topology.exponential(32), 0.66667),
        (topology.exponential(64), 0.71429),
        (topology.star(8), 0.875),
        (topology.star(16), 0.9375),
        (topology.complete(7), 0.0),
        (topology.one_peer_exponential(32), 0.0),
        (topology.one_peer_hypercube(32), 0.0),
    ],
    ids=lambda value: value.name + str(value.n) if isinstance(value, Topology) else "",
)
def test_second_eigenvalue_as_published(graph, second):
    assert 1 - graph.spectral_gap() == pytest.approx(second, abs=1e-5)


def test_the_chain_has_the_eigenvalues_of_theory():
    """The weights are thirds and the ends reflect: 1/3 + 2/3 cos(pi / n)."""
    for n in (2, 5, 16):
        second = 1 / 3 + 2 / 3 * np.cos(np.pi / n) if n > 2 else 0
        assert 1 - topology.chain(n).spectral_gap() == pytest.approx(second, abs=1e-9)


def test_the_links_of_a_binary_tree():
    links = np.argwhere(np.triu(topology.binary_tree(7).matrix(), 1))
    assert links.tolist() == [[0, 1], [0, 2], [1, 3], [1, 4], [2, 5], [2, 6]]


def test_smallest_eigenvalues_as_published():
    def least(graph: Topology) -> float:
        return float(np.real(graph.eigenvalues()).min())

    assert least(topology.ring(8)) == pytest.approx(-1 / 3)
    assert least(topology.torus((4, 4))) == pytest.approx(-0.6)
    assert least(topology.hypercube(16)) == pytest.approx(-0.6)
    assert -0.31 < least(topology.exponential(64)) < -0.17


@pytest.mark.parametrize("n", [2, 4, 8, 16])
def test_one_peer_graphs_of_powers_of_two_give_the_mean_after_a_period(n):
    for graph in (topology.one_peer_exponential(n), topology.one_peer_hypercube(n)):
        assert graph.period == np.log2(n)
        np.testing.assert_allclose(product(graph), 1 / n, atol=1e-15)


@pytest.mark.parametrize(("n", "off"), [(6, 0.0833), (12, 0.0417), (24, 0.0208)])
def test_one_peer_exponential_of_other_numbers_does_not(n, off):
    w = product(topology.one_peer_exponential(n))
    assert np.abs(w - 1 / n).max() == pytest.approx(off, abs=1e-4)


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_base_graphs_give_the_mean_for_any_number(k):
    for n in range(1, 100):
        graph = topology.base_graph(n, k)
        np.testing.assert_allclose(product(graph), 1 / n, atol=1e-13)
        assert graph.degree <= k
        assert graph.is_symmetric
        assert n == 1 or graph.period <= 2 * np.log(n) / np.log(k + 1) + 2


def test_base_graphs_work_in_groups_where_that_is_shorter():
    periods = {6: 4, 10: 6, 12: 5, 24: 6, 40: 8}  # without groups: 5, 7, 7, 9, 11
    assert {n: topology.base_graph(n).period for n in periods} == periods
    assert topology.base_graph(22, 4).period == 4  # 5 in two groups


def test_base_graphs_of_powers_are_hypercubes():
    assert topology.base_graph(8).period == 3
    assert topology.base_graph(9, 2).period == 2
    assert topology.base_graph(6, 2).period == 2


def test_random_matchings_mix_as_expected():
    """E[W^T W] has the eigenvalue 1/2 - 1 / (2 (n - 1)) on what sums to zero."""
    graph = topology.random_matching(8, seed=3, period=4000)
    mean = np.mean([w.T @ w for w in graph.matrices], axis=0)
    values = np.sort(np.linalg.eigvalsh(mean))[:-1]
    np.testing.assert_allclose(values, 3 / 7, atol=0.05)
    assert values.mean() == pytest.approx(3 / 7, abs=1e-6)  # the trace is exact


def test_random_matchings_are_drawn_once():
    draws = [topology.random_matching(8, seed, period=6).matrices for seed in (0, 0, 1)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()
    assert (draws[0][0] != draws[0][1]).any()


def test_shift_one_walks_along_the_other_half():
    """Peer of worker r < n / 2 in step t: (t + r) mod (n / 2) + n / 2."""
    graph = topology.shift_one(6)
    for step in range(7):
        w = graph.matrix(step)
        for rank in range(3):
            peer = (step + rank) % 3 + 3
            assert w[rank, peer] == w[peer, rank] == w[rank, rank] == 0.5


def test_degrees():
    expected = {
        topology.ring(8): 2,
        topology.ring(2): 1,
        topology.torus((4, 4)): 4,
        topology.torus((2, 3)): 3,
        topology.hypercube(16): 4,
        topology.exponential(9): 4,
        topology.star(5): 4,
        topology.complete(5): 4,
        topology.ring(1): 0,
    }
    assert {g.name: g.degree for g in expected} == {
        g.name: degree for g, degree in expected.items()
    }


def test_one_worker_needs_nobody():
    for make in (topology.ring, topology.star, topology.base_graph):
        graph = make(1)
        assert graph.messages() == []
        assert graph.spectral_gap() == 1.0


def test_your_own_matrices():
    w = [[0.75, 0.25], [0.25, 0.75]]
    graph = topology.from_matrix([w, np.eye(2)])
    assert (graph.n, graph.period) == (2, 2)
    np.testing.assert_array_equal(graph.matrix(2), w)
    copy = graph.matrix()
    copy[:] = 0
    np.testing.assert_array_equal(graph.matrix(), w)  # it is a copy


def test_push_sum_takes_columns_alone():
    graph = topology.from_column_stochastic([[0.5, 0, 1], [0.5, 1, 0], [0, 0, 0]])
    assert not graph.is_doubly_stochastic
    assert not graph.is_symmetric


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: topology.ring(0), "ring: n=0 must be a whole number"),
        (lambda: topology.exponential(NO_NUMBER), "exponential: n=2.5 must be a whole"),
        (lambda: topology.star(-1), "star: n=-1 must"),
        (lambda: topology.complete(0), "complete: n=0 must"),
        (lambda: topology.torus((0, 3)), "torus: side=0 must be a whole number"),
        (lambda: topology.hypercube(6), "hypercube: n=6 must be a power of 2; .*base"),
        (lambda: topology.one_peer_hypercube(12), "one_peer_hypercube: n=12 must be"),
        (lambda: topology.chain(0), "chain: n=0"),
        (
            lambda: topology.binary_tree(NO_NUMBER),
            r"binary_tree: n=2.5 must be a whole",
        ),
        (lambda: topology.one_peer_exponential(0), "one_peer_exponential: n=0"),
        (
            lambda: topology.random_matching(5),
            "n=5 must be even.*base_graph",
        ),
        (
            lambda: topology.random_matching(4, period=0),
            "period=0 must be a whole number",
        ),
        (lambda: topology.shift_one(7), "shift_one: n=7 must be even"),
        (lambda: topology.base_graph(4, 0), "base_graph: k=0 must be a whole"),
        (lambda: topology.metropolis([[0, 1], [0, 0]]), "must be a symmetric"),
        (lambda: topology.metropolis([[0, np.nan], [np.nan, 0]]), "have a NaN"),
        (lambda: topology.from_matrix([[1.0, 0.0]]), r"shape \(1, 2\) of a matrix"),
        (lambda: topology.from_matrix(np.zeros((0, 0))), "it is empty"),
        (lambda: topology.from_matrix([[1.5, -0.5], [-0.5, 1.5]]), "it holds -0.5"),
        (lambda: topology.from_matrix([[np.nan, 1], [1, 0]]), "it holds nan"),
        (
            lambda: topology.from_matrix([[0.5, 0.5], [0.4, 0.5]]),
            r"row 1 of the matrix sums to 0.9, off by -0.1; .*metropolis",
        ),
        (
            lambda: topology.from_matrix([[0.5, 0.5], [0.7, 0.3]]),
            r"column 0 of the matrix sums to 1.2, off by \+0.2; .*mean",
        ),
        (
            lambda: topology.from_column_stochastic([[0.5, 0.5], [0.4, 0.5]]),
            r"from_column_stochastic: column 0 of the matrix sums to 0.9",
        ),
    ],
)
def test_refuses_bad_topologies(make, message):
    with pytest.raises(ValueError, match=message):
        make()


LINKS = topology.ring(2).rounds
HALVES = np.full((2, 2), 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mine", [HALVES]), r"rounds=\(\) the Links of one round or more: .*weights"),
        (("mine", 2, [HALVES]), r"rounds=\[array.* the Links .*from_matrix"),
        (("mine", 2, HALVES), "rounds=array.* the Links of one round"),
        (("mine", 2, LINKS[0]), "rounds=Links.* the Links of one round"),
        (("mine", 2, []), r"rounds=\[\] the Links of one round"),
        (("mine", "2", LINKS), "n='2' must be a whole number, 1 or more, and "),
        (("mine", 2.0, LINKS), "n=2.0 must be a whole number"),
        (("mine", 0, LINKS), "n=0 must be a whole number, 1 or more"),
    ],
)
def test_a_topology_refuses_weights_in_the_place_of_links(arguments, message):
    with pytest.raises(TypeError, match="(?s)" + message):
        Topology(*arguments)


@pytest.mark.parametrize("w", ["ring", None, 3, [], [[[0.5]], HALVES], np.ones(2)])
def test_weights_of_another_kind_are_named(w):
    says = r"a matrix must be \(n, n\), the same in every round: give numbers, .*"
    for make in (topology.from_matrix, topology.from_column_stochastic):
        with pytest.raises(ValueError, match="(?s)" + says + "and not") as caught:
            make(w)
        assert str(caught.value).endswith(repr(w)[:60])
    with pytest.raises(ValueError, match="of_matrices: the shape .*" + says):
        Topology.of_matrices("mine", w)


def test_a_single_matrix_is_one_round():
    graph = Topology.of_matrices("mine", HALVES)
    np.testing.assert_array_equal(graph.matrices, HALVES[None])


def test_lazy_names_what_is_no_topology():
    anything: Any = "ring"
    rule = r"lazy: topology must be of type Topology, got 'ring': give .*ring\(8\)"
    with pytest.raises(TypeError, match=rule):
        topology.lazy(anything)


def test_can_be_drawn(tmp_path):
    for graph in (topology.base_graph(6), topology.exponential(8), topology.ring(1)):
        path = tmp_path / f"{graph.name}.png"
        graph.draw(path)
        assert path.read_bytes().startswith(b"\x89PNG")


def test_drawing_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"relaxjax\[cli\]"):
        topology.ring(3).draw(tmp_path / "ring.png")


@given(st.integers(1, 6), st.integers(1, 2), st.booleans(), st.integers(0, 2**32 - 1))
def test_workers_come_to_one_mean_where_there_is_a_gap(n, period, keeps, seed):
    rng = np.random.default_rng(seed)
    permutations = np.eye(n)[[rng.permutation(n) for _ in range(period)]]
    rounds = (permutations + np.eye(n)) / 2 if keeps else permutations
    graph = topology.from_matrix(rounds)
    assert topology.mixes(graph) == (n == 1 or graph.spectral_gap() > 1e-9)


def test_a_graph_is_as_large_as_its_links():
    graph = topology.one_peer_exponential(4096)
    assert [len(links.weights) for links in graph.rounds] == 12 * [2 * 4096]
    assert graph.degree == 1
    assert topology.mixes(graph)
    assert graph.is_doubly_stochastic
    assert not graph.is_symmetric
    assert len(graph.messages(11)[0].pairs) == 4096


def test_a_matrix_that_nobody_has_checked_is_kept_as_it_is():
    w = np.array([[[0.5, np.nan], [0.0, -1.0]]])
    graph = Topology.of_matrices("mine", w)
    np.testing.assert_array_equal(graph.matrices, w)

"""Compressor x feedback x algorithm x workers, against lists of workers."""

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import relaxjax
from relaxjax import all_reduce, compression, emulate, wire_bytes
from relaxjax import collectives as c
from relaxjax._core._random import Keys, fold, key_words
from relaxjax.compression import Compressor
from relaxjax.compression._rows import COMPRESSORS, FEEDBACKS
from relaxjax.compression.feedback._loco import LoCoState
from relaxjax.gradients.mean._choices import TWO_AXES
from relaxjax.gradients.mean._codec import as_codec
from relaxjax.gradients.mean._compressed_mean import EXCHANGES
from tests.compression.references import REFERENCES

SHAPE = (9, 11)
SIZE = 99
STEPS = 3
WORKERS = (2, 3, 4, 8)

# The table's compressors, such that each loses something of an array this small.
SMALL = {
    **COMPRESSORS,
    "top_k": lambda: compression.top_k(0.1, block_size=32),
    "random_k": lambda: compression.random_k(0.2),
    "random_block": lambda: compression.random_block(0.2),
    "threshold": lambda: compression.threshold(0.5, capacity=10),
    "sign": lambda: compression.sign(block_size=16),
}
WRAPPERS = {"none": lambda compressor: compressor, **FEEDBACKS}


def possible(compressor: str, feedback: str, algorithm: str, n: int) -> bool:
    if algorithm == "psum" and not SMALL[compressor]().law.linear:
        return False
    if algorithm in TWO_AXES and n % 2:
        return False
    return compressor != "drive" or feedback == "none"  # it is not a contraction


EVERY = [
    row
    for row in itertools.product(SMALL, WRAPPERS, EXCHANGES, WORKERS)
    if possible(*row)
]


def pairs(row: tuple[Any, ...]) -> set[Any]:
    """Pairs of feedback, algorithm and workers; and the compressor, fed back or not."""
    compressor, feedback, *_ = row
    return {
        (compressor, feedback != "none"),
        *itertools.combinations(enumerate(row[1:]), 2),
    }


def all_pairs(row: tuple[Any, ...]) -> set[Any]:
    """Each two of the four."""
    return {*itertools.combinations(enumerate(row), 2)}


def pairwise(
    rows: list[tuple[Any, ...]], pairs: Callable[..., set[Any]]
) -> list[tuple[Any, ...]]:
    """Some of the rows, in which every one of `pairs` that can be occurs."""
    missing = set().union(*map(pairs, rows))
    chosen = []
    while missing:
        best = max(rows, key=lambda row: len(pairs(row) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen


COVER, SLOW = pairwise(EVERY, pairs), pairwise(EVERY, all_pairs)


def marks(row: tuple[Any, ...]) -> list[pytest.MarkDecorator]:
    """The whole product, of some 4 900, runs by `pytest --every`."""
    if row in COVER:
        return []
    return [pytest.mark.slow if row in SLOW else pytest.mark.every]


matrix = pytest.mark.parametrize(
    ("compressor", "feedback", "algorithm", "n"),
    [pytest.param(*row, marks=marks(row)) for row in EVERY],
)


def compressor_of(compressor: str, feedback: str) -> Compressor:
    return WRAPPERS[feedback](SMALL[compressor]())


def axes_of(algorithm: str, n: int) -> dict[str, int]:
    return {"host": 2, "device": n // 2} if algorithm in TWO_AXES else {"data": n}


def draw(n: int, steps: int = STEPS) -> np.ndarray:
    rng = np.random.default_rng(n)
    return rng.normal(size=(steps, n, *SHAPE)).astype(np.float32)


def ours(tx: Any, axes: dict[str, int], gs: np.ndarray) -> tuple[Any, Any]:
    """Outputs [n, steps, ...] and the last states."""

    def run(gs):
        def step(state, g):
            return tx.update(g, state)[::-1]

        state, outs = jax.lax.scan(step, tx.init(gs[0]), gs)
        return outs, state

    for name in reversed(axes):
        run = jax.vmap(run, axis_name=name)
    workers = np.swapaxes(gs, 0, 1)
    stacked = workers.reshape(*axes.values(), *workers.shape[1:])

    def flat(x):
        return np.asarray(x).reshape(-1, *x.shape[len(axes) :])

    return jax.tree.map(flat, jax.jit(run)(stacked))


def coder(compressor: Compressor, axes: dict[str, int]) -> Any:
    """A function of a step's words: what arrives of x when worker i sends it."""
    workers = list(itertools.product(*map(range, axes.values())))

    @jax.jit
    def arrives(x, words, worker, place):
        noises = ()
        if compressor.random:
            own = functools.reduce(fold, worker, fold(words, 1))
            noises = (Keys(shared=fold(words, 2), own=own),)
        codec = as_codec(compressor, noises, jnp.uint32(0))
        payload = jax.lax.optimization_barrier(codec.encode(x, place))
        return codec.decode(payload, x.size, place)

    def of_step(words):
        return lambda i, x, place: np.asarray(
            arrives(np.float32(x), words, workers[i], np.uint32(place))
        )

    return of_step


def theirs(
    compressor: Compressor, algorithm: str, axes: dict[str, int], gs: np.ndarray
) -> tuple[np.ndarray, list[Any]]:
    """The same, worker by worker."""
    rule: Any = compressor.feedback
    before, after = rule.before, rule.after
    words, coded = key_words(0), coder(compressor, axes)
    states: list[Any] = [compressor.feedback.init(gs[0][0].ravel()) for _ in gs[0]]
    outs = []
    for step in gs:
        flat = [g.ravel() for g in step]
        ps = [np.asarray(before(g, s)) for g, s in zip(flat, states, strict=True)]
        mean, lost = REFERENCES[algorithm](ps, coded(words))
        every = [
            after(g, p - gone, mean, s)
            for g, p, gone, s in zip(flat, ps, lost, states, strict=True)
        ]
        states = [state for _, state in every]
        outs.append([np.asarray(out).reshape(SHAPE) for out, _ in every])
        words = fold(words, 0)
    return np.swapaxes(np.asarray(outs), 0, 1), states


def plain(state: Any) -> tuple[list[np.ndarray], float]:
    """The leaves of a state, and how far a rounding at a tie carries their values.

    Codes of eight bits, of a residual near zero perhaps, stand for code times scale.
    """
    whole: list[np.ndarray] = []
    steps = [0.0]
    for part in jax.tree.leaves(state, is_leaf=lambda s: isinstance(s, LoCoState)):
        if isinstance(part, LoCoState):
            codes, largest = np.float32(part.codes), np.float32(part.largest)
            over = largest.shape + (1,) * (codes.ndim - largest.ndim)
            whole += [codes * largest.reshape(over) / 127, largest, np.array(part.age)]
            steps.append(1.01 * float(largest.max()) / 127)
        else:
            whole.append(np.asarray(part))
    return whole, max(steps)


@pytest.mark.few(2)
@matrix
def test_equals_a_list_of_workers(compressor, feedback, algorithm, n):
    axes, codec = axes_of(algorithm, n), compressor_of(compressor, feedback)
    tx = all_reduce(tuple(axes), algorithm=algorithm, compressor=codec)
    out, state = ours(tx, axes, draw(n))
    expected, states = theirs(codec, algorithm, axes, draw(n))
    np.testing.assert_allclose(out, expected, rtol=2e-4, atol=2e-5)
    for other in out:  # replicas are the same to the bit
        np.testing.assert_array_equal(other, out[0])
    leaves, step = plain(state.compressed.feedback)
    every = zip(leaves, zip(*(plain(s)[0] for s in states), strict=True), strict=True)
    for ours_, theirs_ in every:
        theirs_ = np.stack(theirs_).reshape(ours_.shape)
        np.testing.assert_allclose(ours_, theirs_, rtol=2e-4, atol=1e-4 + step)


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", ["two_shot", "ring", "one_shot"])
@pytest.mark.parametrize("sizes", [(2, 4), (3, 2), (1, 4), (4, 1)])
def test_replicas_over_two_axes_are_the_same_though_rounding_is_random(
    algorithm, sizes
):
    axes = {"host": sizes[0], "device": sizes[1]}
    codec = compression.error_feedback(
        compression.quantize(2, stochastic_rounding=True)
    )
    tx = all_reduce(tuple(axes), algorithm=algorithm, compressor=codec)
    gs = draw(math.prod(sizes))
    out, state = ours(tx, axes, gs)
    for other in out:
        np.testing.assert_array_equal(other, out[0])
    (residual,) = jax.tree.leaves(state.compressed.feedback)
    left = out[0].sum(axis=0) + residual.reshape(len(out), *SHAPE).mean(axis=0)
    np.testing.assert_allclose(left, gs.mean(axis=1).sum(axis=0), atol=1e-4)


def stated(codec: Any, algorithm: str, axes: dict[str, int]) -> int:
    if algorithm in TWO_AXES:
        sizes = (axes["host"], axes["device"])
        on_two = {
            "hierarchical": c.compressed_hierarchical_wire_bytes,
            "two_level": c.compressed_two_level_wire_bytes,
        }
        return on_two[algorithm](SIZE, sizes, codec)
    (n,) = axes.values()
    formula = {
        "psum": c.linear_psum_wire_bytes,
        "one_shot": c.compressed_one_shot_wire_bytes,
        "two_shot": c.compressed_two_shot_wire_bytes,
        "ring": c.compressed_ring_wire_bytes,
    }
    return formula[algorithm](SIZE, n, codec)


PLAIN = [row for row in EVERY if row[1] == "none"]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("compressor", "algorithm"), sorted({(row[0], row[2]) for row in PLAIN})
)
def test_traced_bytes_are_those_stated(compressor, algorithm):
    for n in (1, 3, 4):
        if not possible(compressor, "none", algorithm, n):
            continue
        axes, codec = axes_of(algorithm, n), compressor_of(compressor, "none")
        tx: Any = all_reduce(tuple(axes), algorithm=algorithm, compressor=codec)
        noises = (Keys(key_words(0), key_words(1)),) if codec.random else ()
        expected = stated(as_codec(codec, noises, jnp.uint32(0)), algorithm, axes)
        x = jax.ShapeDtypeStruct(SHAPE, jnp.float32)
        assert wire_bytes(tx, x, emulate(axes)) == expected
        assert (expected > 0) == (n > 1)


def on_mesh(tx: Any, axes: dict[str, int], check_vma: bool = False) -> Any:
    devices = np.asarray(jax.devices()[: int(np.prod(list(axes.values())))])
    mesh = jax.sharding.Mesh(devices.reshape(tuple(axes.values())), tuple(axes))

    def update(g):
        g = g.reshape(SHAPE)
        return tx.update(g, tx.init(g))[0]

    def local(g):
        return update(g)[None]

    spec = P(tuple(axes))
    return jax.jit(
        jax.shard_map(
            update if check_vma else local,
            mesh=mesh,
            in_specs=spec,
            out_specs=P() if check_vma else spec,
            check_vma=check_vma,
        )
    )


QUICK = ("sign", "top_k", "random_k")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("compressor", "algorithm"),
    [
        pytest.param(*pair, marks=[] if pair[0] in QUICK else [pytest.mark.slow])
        for pair in sorted({(row[0], row[2]) for row in PLAIN})
    ],
)
def test_compiled_bytes_are_those_traced(compressor, algorithm):
    axes = axes_of(algorithm, 4)
    tx: Any = all_reduce(
        tuple(axes), algorithm=algorithm, compressor=compressor_of(compressor, "none")
    )
    x = jax.ShapeDtypeStruct(SHAPE, jnp.float32)
    stacked = jax.ShapeDtypeStruct((4, *SHAPE), jnp.float32)
    traced = wire_bytes(tx, x, emulate(axes))
    assert relaxjax.compiled_wire_bytes(on_mesh(tx, axes), stacked) == traced


@pytest.mark.few(2)
@pytest.mark.parametrize("algorithm", EXCHANGES)
@pytest.mark.parametrize("compressor", ["random_k", "quantize4"])
def test_the_result_is_known_to_be_equal_where_types_are_checked(compressor, algorithm):
    if not possible(compressor, "none", algorithm, 4):
        return
    axes = axes_of(algorithm, 4)
    tx = all_reduce(
        tuple(axes), algorithm=algorithm, compressor=compressor_of(compressor, "none")
    )
    g = draw(4, 1)[0]
    typed = on_mesh(tx, axes, check_vma=True)(g)
    np.testing.assert_allclose(typed, on_mesh(tx, axes)(g)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.few(2)
@pytest.mark.parametrize("algorithm", EXCHANGES)
@pytest.mark.parametrize("n", [1, 3, 8])
def test_what_is_lost_makes_up_for_the_mean(algorithm, n):
    """The law of every exchange, for the sum over the workers."""
    if algorithm in TWO_AXES and n == 3:
        return
    axes = {"host": min(n, 2), "device": -(-n // 2)} if n != 3 else {"data": 3}
    axes = axes if algorithm in TWO_AXES else {"data": n}
    compressor = compressor_of(
        "random_k" if algorithm == "psum" else "stochastic2", "none"
    )

    def exchange(x):
        noise = Keys(
            key_words(0), fold(key_words(1), jax.lax.axis_index(list(axes)[-1]))
        )
        codec = as_codec(compressor, (noise,), jnp.uint32(0))
        return tuple(EXCHANGES[algorithm].run(x, tuple(axes), codec))

    run = exchange
    for name in reversed(axes):
        run = jax.vmap(run, axis_name=name)
    x = draw(n, 1)[0].reshape(*axes.values(), -1)
    mean, lost = (np.asarray(y).reshape(n, -1) for y in jax.jit(run)(x))
    np.testing.assert_allclose(
        mean[0] + lost.mean(axis=0), x.reshape(n, -1).mean(axis=0), rtol=1e-5, atol=1e-6
    )
    assert (np.abs(lost).max() > 0.01) == (n > 1)

"""lossy_push_sum: lost messages are merely late, and the mean is that of all."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import emulate, lossy_push_sum, topology
from relaxjax.topology import Topology
from tests.helpers import assert_equal, mesh_of, pulled, targets_of

RATE, STEPS, R = 0.1, 12, 2.0**-22
SGD = optax.sgd(RATE)
places = pytest.mark.parametrize("place", [mesh_of, emulate], ids=["mesh", "emulated"])


def lopsided(n: int) -> Topology:
    """Directed and irregular: worker i gives to those behind it, and to 0."""
    w = np.tril(np.ones((n, n)))
    w[0] = 1
    return topology.from_column_stochastic(w / w.sum(axis=0))


def losses(n: int, period: int = 5) -> np.ndarray:
    return np.random.default_rng(7).random((period, n, n)) < 0.4


def reference(targets, p, lost, every: int = 1) -> list[np.ndarray]:
    """Models by the running sums of what each worker gives away, as in the paper."""
    n = len(targets)
    xs, ws = [0 * t for t in targets], [1.0 for _ in targets]
    links = [(i, j) for i in range(n) for j in range(n) if i != j and p[i, j]]
    given = [(0 * t, 0.0) for t in targets]
    heard = {link: (0 * targets[0], 0.0) for link in links}
    seen = []
    for step in range(STEPS):
        zs = [x / w for x, w in zip(xs, ws, strict=True)]
        xs = [x - RATE * (z - t) for x, z, t in zip(xs, zs, targets, strict=True)]
        if step % every == every - 1:
            given = [
                (x + more, w + mass)
                for (x, w), more, mass in zip(given, xs, ws, strict=True)
            ]
            xs = [p[i, i] * x for i, x in enumerate(xs)]
            ws = [p[i, i] * w for i, w in enumerate(ws)]
            for i, j in links:
                if not lost[step // every % len(lost), i, j]:
                    xs[i] = xs[i] + p[i, j] * (given[j][0] - heard[i, j][0])
                    ws[i] = ws[i] + p[i, j] * (given[j][1] - heard[i, j][1])
                    heard[i, j] = given[j]
        seen.append(np.stack([x / w for x, w in zip(xs, ws, strict=True)]))
    return seen


@pytest.mark.few(2)
@places
@pytest.mark.parametrize("every", [1, 3])
def test_equals_a_list_of_workers(every, place):
    n = 4
    graph, targets = lopsided(n), targets_of(n)
    method = lossy_push_sum("data", graph, losses(n), every=every)
    found = pulled(optax.chain(SGD, method), targets, place(n), STEPS)
    expected = reference(targets, graph.matrix(), losses(n), every)
    for (z, state), ref in zip(found, expected, strict=True):
        mass = state[1].kept.mass[:, None]
        np.testing.assert_allclose(mass * z, mass * ref, atol=1e-5)


@pytest.mark.few(2)
@places
def test_without_loss_it_is_push_sum(place):
    graph, targets = lopsided(4), targets_of(4)
    found = [
        pulled(optax.chain(SGD, method), targets, place(4), STEPS)
        for method in (
            lossy_push_sum("data", graph, 0.0),
            relaxjax.push_sum("data", graph),
        )
    ]
    for (z, state), (expected, exact) in zip(*found, strict=True):
        np.testing.assert_allclose(z, expected, atol=5e-6)
        np.testing.assert_allclose(state[1].kept.mass, exact[1].kept.mass, atol=1e-6)


def rounds(tx: Any, z: np.ndarray, state: Any, length: int) -> tuple[Any, Any]:
    """Models and states after each of `length` rounds without gradients."""

    def run(z, state):
        def one(carry, _):
            z, state = carry
            moved, state = tx.update(jnp.zeros_like(z), state, z)
            return (z + moved, state), (z + moved, state.kept)

        return jax.lax.scan(one, (z, state), length=length)[1]

    return jax.jit(jax.vmap(run, axis_name="data", out_axes=1))(z, state)


def started(tx: Any, z: np.ndarray) -> Any:
    return jax.vmap(tx.init, axis_name="data")(z)


def under_way(graph: Topology, sent: np.ndarray, heard: Any, r: float) -> np.ndarray:
    """The sum over the links, of whole numbers [rounds, workers, ...]."""
    total: Any = 0
    for (links, weights), sums in zip(graph.messages(), heard, strict=True):
        for a, b in links:
            total = total + weights[b] * r * (np.int64(sent[:, a]) - sums[:, b])
    return total


@pytest.mark.few(2)
@pytest.mark.parametrize("loss", [0.0, 0.3, 0.9])
def test_what_is_there_and_under_way_stays(loss):
    n = 5
    graph = lopsided(n)
    z = np.random.default_rng(0).normal(size=(n, 6)).astype(np.float32)
    tx = lossy_push_sum("data", graph, loss, seed=2)
    z_seen, kept = jax.tree.map(np.asarray, rounds(tx, z, started(tx, z), 50))
    (x_sent, w_sent), heard = kept.sent, kept.heard
    w = kept.mass.astype(np.float64)
    x = (w[..., None] * z_seen).sum(axis=1)
    x_late = under_way(graph, x_sent, [h[0] for h in heard], R)
    w_late = under_way(graph, w_sent, [h[1] for h in heard], R)
    np.testing.assert_allclose(w.sum(axis=1) + w_late, n, atol=1e-5)
    np.testing.assert_allclose(x + x_late, [z.sum(axis=0)] * 50, atol=2e-5)
    assert (np.abs(w_late).max() > 0.1) == (loss > 0)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["ring", "exponential", "lopsided"])
def test_the_mean_is_found_though_a_third_is_lost(name):
    n = 8
    graph = lopsided(n) if name == "lopsided" else getattr(topology, name)(n)
    z = np.random.default_rng(0).normal(size=(n, 6)).astype(np.float32)
    tx = lossy_push_sum("data", graph, 0.3, seed=1)
    found, _ = rounds(tx, z, started(tx, z), 200)
    plain = np.broadcast_to(z.mean(axis=0), z.shape)
    np.testing.assert_allclose(found[-1], plain, atol=2e-5)


def test_an_outage_is_made_up_for():
    """One of two workers hears nothing for 6 rounds, and then everything."""
    lost = np.zeros((20, 2, 2), int)
    lost[:6, 1, 0] = 1
    tx = lossy_push_sum("data", topology.complete(2), lost)
    z = np.array([1.0, 3.0], np.float32)
    found, kept = rounds(tx, z, started(tx, z), 20)
    assert np.abs(found[5] - 2).max() > 0.1
    assert kept.mass[5].sum() < 0.5  # the rest is under way
    np.testing.assert_allclose(found[-1], [2, 2], atol=1e-5)


def test_nobody_gives_more_than_there_is():
    """Where nearly all is lost, masses shrink below a multiple, and stay positive."""
    tx = lossy_push_sum("data", topology.complete(5), 0.9999)
    z = np.arange(5, dtype=np.float32)
    found, kept = rounds(tx, z, started(tx, z), 40)
    assert (kept.mass > 0).all()
    assert kept.mass[-1].max() < R
    assert np.isfinite(found).all()


def test_sums_wrap_around():
    """Starting near the largest whole number is like starting at zero."""
    n = 4
    graph = topology.ring(n)
    tx: Any = lossy_push_sum("data", graph, losses(n))
    z = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    state = started(tx, z)

    def ahead(x):
        return x + jnp.int32(2**31 - 1000)

    sums = state.kept._replace(
        sent=jax.tree.map(ahead, state.kept.sent),
        heard=jax.tree.map(ahead, state.kept.heard),
    )
    found, _ = rounds(tx, z, state, 15)
    wrapped, kept = rounds(tx, z, state._replace(kept=sums), 15)
    assert_equal(found, wrapped)
    assert np.asarray(kept.sent[1]).min() < 0


@pytest.mark.long
def test_losses_are_drawn_alike_everywhere():
    n, targets = 4, targets_of(4)
    runs = [
        pulled(
            optax.chain(SGD, lossy_push_sum("data", topology.ring(n), 0.5, seed=seed)),
            targets,
            place(n),
            6,
        )
        for place, seed in ((mesh_of, 0), (emulate, 0), (emulate, 1))
    ]
    (z, state), (emulated, other_state), (other, _) = (run[-1] for run in runs)
    np.testing.assert_allclose(z, emulated, atol=1e-5)
    for mine, theirs in zip(
        state[1].kept.heard, other_state[1].kept.heard, strict=True
    ):
        np.testing.assert_allclose(mine[1], theirs[1], atol=1)
    assert np.abs(emulated - other).max() > 1e-3


def test_bytes_and_state_are_as_stated():
    params = {"w": jnp.zeros((10, 4)), "b": jnp.zeros(3)}
    graph = topology.ring(8)
    tx = lossy_push_sum("data", graph, 0.3, every=2)
    exact = relaxjax.push_sum("data", graph, every=2)
    for start, bytes_sent in ((0, 0), (1, 2 * 4 * 44)):
        for one in (tx, exact):
            sent = relaxjax.wire_bytes(one, params, emulate(8), start=start)
            assert sent == bytes_sent
    kept = jax.eval_shape(tx.init, params).kept
    assert sum(x.size for x in jax.tree.leaves(kept)) == 3 * (43 + 1) + 2


def bare(**how: Any) -> Any:
    return lossy_push_sum(
        **{"axis_name": "data", "topology": topology.ring(4), "loss": 0.3, **how}
    )


NO_SHARE = topology.from_column_stochastic([[0.0, 0.5], [1.0, 0.5]])


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"loss": 1.1}, ValueError, r"loss=1.1 must be a probability in \[0, 1\]"),
        ({"loss": [[1, 0]]}, ValueError, r"loss=of shape \(1, 2\).*\[period, 4, 4\]"),
        ({"resolution": 0.0}, ValueError, "resolution=0.0 must be above 0"),
        ({"topology": NO_SHARE}, ValueError, "keeps a share of 0 .*lazy"),
        ({"topology": topology.base_graph(5)}, ValueError, "needs one that stays"),
        ({"axis_name": ("a", "b")}, TypeError, "must be one axis"),
        ({"every": 0}, ValueError, "every=0 must be a whole number"),
        ({"topology": 4}, TypeError, "topology=4 must be one of relaxjax.topology"),
    ],
)
def test_refuses_bad_arguments(how, error, message):
    with pytest.raises(error, match=message):
        bare(**how)


def test_refuses_bad_calls():
    method, x = bare(), jnp.zeros(2)
    with pytest.raises(ValueError, match="weight= has no meaning here"):
        method.update(x, method.init(x), x, weight=1.0)
    with pytest.raises(ValueError, match="lossy_push_sum: update needs params"):
        method.update(x, method.init(x))
    with pytest.raises(NameError, match="lossy_push_sum: no axis named 'data' here"):
        method.update(x, method.init(x), x)
    three = jnp.zeros((3, 2))
    state = jax.vmap(method.init)(three)
    with pytest.raises(ValueError, match="is of 4 workers, and the axis 'data' has 3"):
        jax.vmap(method.update, axis_name="data")(three, state, three)

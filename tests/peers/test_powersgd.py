"""PowerSGD beside the code of its authors, step by step, on the same gradients.

`python3 scripts/check.py --peers` installs epfml/powersgd at commit f07be92. The
package of that name on PyPI, 0.0.2, has no modules.
"""

import functools
from typing import Any

import jax
import numpy as np
import pytest

import relaxjax

torch = pytest.importorskip("torch")
epfml = pytest.importorskip("powersgd.powersgd")

N, RANK, STEPS = 4, 2, 30
SHAPES = {"a": (12, 10), "b": (9, 20), "c": (12, 10)}
Stream = list[dict[str, np.ndarray]]


def gradients(seed: int = 0) -> Stream:
    """For each step, [N, rows, columns] by name: a slow part, and noise."""
    rng = np.random.default_rng(seed)
    slow = {k: rng.normal(size=s) for k, s in SHAPES.items()}
    return [
        {
            k: (slow[k] + 0.5 * rng.normal(size=(N, *s))).astype(np.float32)
            for k, s in SHAPES.items()
        }
        for _ in range(STEPS)
    ]


def theirs(iterations: int, stream: Stream, first: dict[str, np.ndarray]) -> Stream:
    """What comes out of each step, from these first P.

    All of it is linear, so that one worker with the mean gradients does what all do.
    """
    rank = next(iter(first.values())).shape[-1]
    config = epfml.BasicConfig(rank=rank, num_iters_per_step=iterations)
    reducer = epfml.BasicPowerSGD([torch.zeros(s) for s in SHAPES.values()], config)
    for batch, names in zip(reducer._ps, ("ac", "b"), strict=True):
        batch.copy_(torch.tensor(np.stack([first[k] for k in names])))
    owed = {k: torch.zeros(s) for k, s in SHAPES.items()}
    outs = []
    for g in stream:
        sent = [torch.tensor(g[k].mean(0)) + owed[k] for k in SHAPES]
        out = reducer.aggregate(sent)
        owed = dict(zip(SHAPES, sent, strict=True))  # it leaves its errors there
        outs.append({k: x.numpy() for k, x in zip(SHAPES, out, strict=True)})
    return outs


def ours(tx: Any, stream: Stream) -> tuple[Stream, dict[str, np.ndarray]]:
    """The same of the transposed matrices, and the first factors."""
    turned = [{k: x.transpose(0, 2, 1) for k, x in g.items()} for g in stream]
    init, update = (
        jax.jit(jax.vmap(f, axis_name="data")) for f in (tx.init, tx.update)
    )
    state, outs = init(turned[0]), []
    first = {k: np.asarray(x[0, 0]) for k, x in state.right.items()}
    for g in turned:
        out, state = update(g, state)
        outs.append({k: np.asarray(x[0]).T for k, x in out.items()})
    return outs, first


def owed(outs: Stream, stream: Stream) -> float:
    """|what has not come out by the end| over |the mean gradient of a step|."""
    each = list(zip(stream, outs, strict=True))
    left = [sum(g[k].mean(0) - out[k] for g, out in each) for k in SHAPES]
    size = sum(np.square(g[k].mean(0)).sum() for g in stream for k in SHAPES) / STEPS
    return float(np.sqrt(sum(np.square(x).sum() for x in left) / size))


def assert_alike(found: Stream, expected: Stream) -> None:
    for one, other in zip(found, expected, strict=True):
        for k in SHAPES:
            np.testing.assert_allclose(one[k], other[k], rtol=1e-3, atol=1e-3)


def test_two_iterations_a_step_are_ours_from_the_rest():
    stream = gradients()[:12]
    tx = relaxjax.power_sgd("data", rank=RANK, warm_start="rest", min_compression=0)
    found, first = ours(tx, stream)
    assert_alike(found, theirs(2, stream, first))


def test_one_iteration_a_step_is_acp_sgd():
    stream = gradients()[:12]
    tx = relaxjax.acp_sgd("data", rank=RANK, min_compression=0)
    found, first = ours(tx, stream)
    assert_alike(found, theirs(1, stream, first))


def test_what_is_owed_at_equal_bytes(measured):
    """By the whole matrix, by the rest, and by one factor a step of twice the rank."""
    made = {
        f"power_sgd(rank={RANK})": relaxjax.power_sgd,
        f'power_sgd(rank={RANK}, warm_start="rest")': functools.partial(
            relaxjax.power_sgd, warm_start="rest"
        ),
        f"acp_sgd(rank={2 * RANK})": relaxjax.acp_sgd,
    }
    found = {label: [] for label in made}
    for seed in range(5):
        stream = gradients(seed)
        for label, make in made.items():
            rank = 2 * RANK if make is relaxjax.acp_sgd else RANK
            tx = make("data", rank=rank, min_compression=0)
            found[label].append(owed(ours(tx, stream)[0], stream))
    for label, each in found.items():
        measured("owed", label, each)
    whole, rest, turns = map(np.array, found.values())
    assert (rest < whole).all()
    assert (turns < rest).all()

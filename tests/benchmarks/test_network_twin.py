"""The model in PyTorch is the model in JAX: same loss, same gradients, same steps."""

import jax
import numpy as np
import pytest

from benchmarks.network.problem import HEADS, Problem, problem, task
from benchmarks.network.torch_twin import arrays_of, twin
from relaxjax._core._tree import leaf_names

OWN = task(width=16, layers=2)
MADE = problem(OWN, processes=2, steps=3, windows=5, rows=2)


def by_name(tree) -> dict[str, np.ndarray]:
    leaves = map(np.asarray, jax.tree.leaves(tree))
    return dict(zip(leaf_names(tree), leaves, strict=True))


def test_loss_and_gradients_agree():
    torch = pytest.importorskip("torch")
    loss, gradients = jax.value_and_grad(OWN.loss)(OWN.params, MADE.batches[0])
    module = twin(MADE.params, heads=HEADS)
    found = module(torch.tensor(MADE.batches[0]))
    found.backward()
    assert abs(found.item() - float(loss)) < 1e-4
    wanted = arrays_of(by_name(gradients))
    assert set(wanted) == set(module.leaves)
    for name, leaf in module.leaves.items():
        scale = np.abs(wanted[name]).max() or 1.0
        np.testing.assert_allclose(leaf.grad, wanted[name], atol=1e-4 * scale)


def test_problem_is_read_as_it_was_written(tmp_path):
    MADE.save(tmp_path / "problem.npz")
    read = Problem.load(tmp_path / "problem.npz")
    jax.tree.map(np.testing.assert_array_equal, MADE, read)


def test_processes_share_batches_and_windows():
    assert MADE.batches.shape == (3, 4, 65)
    rows = [MADE.own_rows(4, i, 2) for i in range(2)]
    np.testing.assert_array_equal(np.concatenate(rows), MADE.batches[1])
    parts = [MADE.own_windows(i, 2) for i in range(2)]
    np.testing.assert_array_equal(np.concatenate(parts), MADE.windows)

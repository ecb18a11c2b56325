"""The real data sets, their splits and models."""

import functools
import hashlib
import math
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from relaxjax._core._arrays import shapes_of
from relaxjax.tasks import TASKS, _chars, _digits, outline
from relaxjax.tasks._task import Task, shuffled


@functools.cache
def load(name: str) -> Task:
    return TASKS[name](0)


@pytest.fixture(params=sorted(TASKS))
def task(request) -> Task:
    return load(request.param)


def test_the_outline_is_the_tasks_own(task):
    shapes = shapes_of(task.params)
    assert outline(task.name) == (shapes, task.steps, task.learning_rate)


@pytest.mark.few(2)
def test_batches_depend_on_the_seed_alone(task):
    def first_three(seed: int) -> list[np.ndarray]:
        return jax.tree.leaves(list(islice(task.batches(seed, 24), 3)))

    here, again, elsewhere = first_three(5), first_three(5), first_three(6)
    assert all(map(np.array_equal, here, again))
    assert not all(map(np.array_equal, here, elsewhere))
    assert {len(x) for x in here} == {24}


def test_the_start_depends_on_the_seed(task):
    other = TASKS[task.name](1)
    here, there = jax.tree.leaves(task.params), jax.tree.leaves(other.params)
    assert not all(map(np.array_equal, here, there))
    assert other.data == task.data


def test_models_are_small(task):
    assert sum(x.size for x in jax.tree.leaves(task.params)) <= 200_000


def test_the_digits_are_those_that_scikit_learn_ships():
    data = load("digits").data
    assert data.bytes == 1797 * 65
    expected = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
    assert data.sha256 == expected


def test_digits_are_held_out_evenly():
    train, held_out, _ = _digits._load()
    assert (len(train.labels), len(held_out.labels)) == (1437, 360)
    assert train.images.max() == 1.0
    shares = np.bincount(held_out.labels) / np.bincount(train.labels)
    np.testing.assert_allclose(shares, 360 / 1437, rtol=0.05)
    rows = np.concatenate([train.images, held_out.images])
    everything = load_digits(return_X_y=True)[0] / 16
    np.testing.assert_array_equal(
        rows[np.lexsort(rows.T)], everything[np.lexsort(everything.T)]
    )


@given(st.integers(1, 40), st.integers(1, 90), st.integers(0, 5))
@settings(deadline=None)
def test_shuffled_takes_each_position_once_before_any_twice(count, rows, seed):
    batches = islice(shuffled(seed, count, rows), 4)
    stream = np.concatenate(list(batches))
    for start in range(0, len(stream) - count + 1, count):
        assert sorted(stream[start : start + count]) == list(range(count))


def test_held_out_files_are_whole_and_disjoint_from_training_files():
    files = _chars.source_files()
    train, held_out = _chars.split_files(files)
    assert len(files) >= 100
    assert files == sorted(files)
    assert set(train).isdisjoint(held_out)
    assert sorted(train + held_out) == files
    assert len(held_out) == len(files) // 10
    assert sum(file.stat().st_size for file in files) <= 4 * 2**20


def test_chars_describes_the_files_it_read():
    task = load("chars")
    train, held_out = _chars.split_files(_chars.source_files())
    raw = b"".join(file.read_bytes() for file in train + held_out)
    assert task.data.bytes == len(raw)
    assert task.data.sha256 == hashlib.sha256(raw).hexdigest()


def test_the_cap_drops_the_last_files(tmp_path):
    for name in "cab":
        (tmp_path / f"{name}.py").write_bytes(b"x" * 10)
    names = [file.stem for file in _chars.source_files(tmp_path, cap=25)]
    assert names == ["a", "b"]


def test_a_library_without_source_is_refused():
    with pytest.raises(ValueError, match=r"task 'chars' reads .* has 0 .py files"):
        _chars.split_files([])


def test_all_bytes_become_symbols(tmp_path):
    (tmp_path / "a.py").write_bytes(bytes([0, 65, 127, 128, 255]))
    text = _chars.encode([tmp_path / "a.py"])
    assert text.tolist() == [0, 65, 127, 127, 127]


def test_the_language_model_sees_only_the_past():
    model = _chars.LanguageModel(width=16, layers=1, heads=2, rngs=nnx.Rngs(0))
    before = jnp.arange(20)[None]
    changed = before.at[0, 12].set(99)
    run = nnx.jit(lambda model, symbols: model(symbols))
    moved = jnp.abs(run(model, changed) - run(model, before)).max(axis=-1)[0]
    assert jnp.all(moved[:12] == 0)
    assert jnp.all(moved[12:] > 0)


@pytest.mark.long
def test_bits_are_nats_over_log_two():
    task = load("chars")
    flat = jax.tree.map(jnp.zeros_like, task.params)  # uniform over the symbols
    assert float(task.metric(flat)) == pytest.approx(7.0)
    batch = next(task.batches(0, 4))
    assert float(jax.jit(task.loss)(flat, batch)) == pytest.approx(7 * math.log(2))


def test_the_metric_is_measured_on_what_is_held_out():
    chars, digits = load("chars"), load("digits")
    nats = jax.jit(chars.loss)(chars.params, chars.held_out)
    expected = float(nats) / math.log(2)
    assert float(chars.metric(chars.params)) == pytest.approx(expected)
    assert len(digits.held_out.labels) == len(_digits._load()[1].labels)


def test_accuracy_counts_correct_digits():
    task = load("digits")
    always_three = jax.tree.map(jnp.zeros_like, task.params)
    output = always_three["output"]
    output["bias"] = output["bias"].at[3].set(1.0)
    _, held_out, _ = _digits._load()
    expected = float(np.mean(held_out.labels == 3))
    assert float(task.metric(always_three)) == pytest.approx(expected)

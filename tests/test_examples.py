"""The examples run, learn, and differ from their one-device twins by ten lines."""

import difflib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, tasks
from tests.shown import gallery, require_same

EXAMPLES = Path(__file__).parent.parent / "examples"
TWINS = [
    ("one_device.py", "data_parallel.py"),
    ("one_device_linen.py", "linen_train_state.py"),
]
SKELETON = EXAMPLES.parent / "relaxjax" / "compare" / "skeletons" / "task.py"
LARGE = EXAMPLES / "tasks" / "lab_chars.py"  # takes a minute to learn
TASK_FILES = [*sorted({*(EXAMPLES / "tasks").glob("*.py")} - {LARGE}), SKELETON]
TASK_FILES += [pytest.param(LARGE, marks=pytest.mark.slow, id=LARGE.stem)]
MOST_CHANGED_LINES = 10


def changed_lines(before: str, after: str) -> int:
    """Lines added, removed, or changed in place (those count once)."""
    a, b = before.splitlines(), after.splitlines()
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    return sum(
        max(a_end - a_start, b_end - b_start)
        for kind, a_start, a_end, b_start, b_end in matcher.get_opcodes()
        if kind != "equal"
    )


def start(name: str) -> subprocess.Popen[str]:
    """Runs an example as a user would."""
    env = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(EXAMPLES.parent)}
    for ours in ("NPROC", "XLA_FLAGS"):
        env.pop(ours, None)
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / name)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def accuracy_of(example: subprocess.Popen[str], name: str) -> float:
    """Reads what it prints, which is what the gallery shows."""
    out, err = example.communicate(timeout=300)
    assert example.returncode == 0, err
    if name in gallery():
        require_same(gallery()[name], out)
    found = re.search(r"held-out accuracy ([\d.]+)", out)
    assert found, out
    return float(found[1])


def test_the_gallery_shows_each_example():
    of_one_device = {one for one, _ in TWINS}
    files = {path.name for path in EXAMPLES.glob("*.py")}
    assert set(gallery()) == files - of_one_device
    assert all(gallery().values())


@pytest.mark.slow
@pytest.mark.parametrize("name", gallery())
def test_an_example_prints_what_the_gallery_shows(name):
    example = start(name)
    out, err = example.communicate(timeout=1800)
    assert example.returncode == 0, err
    require_same(gallery()[name], out)


def test_the_count_of_changed_lines():
    assert changed_lines("a\nb\nc", "a\nb\nc") == 0
    assert changed_lines("a\nb\nc", "a\nB\nc") == 1
    assert changed_lines("a\nb\nc", "a\nB\nB\nc\nd") == 3
    assert changed_lines("a\nb\nc", "c") == 2


@pytest.mark.parametrize(("one", "many"), TWINS)
def test_ten_lines_make_it_data_parallel(one, many):
    before, after = ((EXAMPLES / name).read_text() for name in (one, many))
    assert 0 < changed_lines(before, after) <= MOST_CHANGED_LINES


@pytest.mark.slow
@pytest.mark.parametrize(("one", "many"), TWINS)
def test_both_twins_learn_the_same(one, many):
    alone, together = map(accuracy_of, [start(one), start(many)], [one, many])
    assert together >= 0.95
    assert abs(together - alone) <= 0.01


@pytest.mark.slow
def test_one_bit_adam_is_one_line_instead_of_adamw():
    adamw, one_bit = (
        (EXAMPLES / name).read_text()
        for name in ("data_parallel.py", "one_bit_adam.py")
    )
    assert changed_lines(adamw, one_bit) == 2  # the docstring is the other
    assert accuracy_of(start("one_bit_adam.py"), "one_bit_adam.py") >= 0.95


@pytest.mark.slow
def test_power_sgd_learns_characters_with_fewer_bytes():
    example = runpy.run_path(str(EXAMPLES / "power_sgd.py"))
    bits, fewer = example["main"](steps=30)
    assert bits < 5  # of 7 at the start
    assert fewer > 8


@pytest.mark.slow
def test_diloco_learns_characters_in_a_bit_and_in_four():
    example = runpy.run_path(str(EXAMPLES / "diloco.py"))
    found = example["main"](steps=20, sync_every=5)
    assert found["1 bit"][1] > 5 * 25
    assert found["4 bits"][1] > 5 * 7
    assert max(bits for bits, _ in found.values()) < 6  # of 7 at the start


@pytest.mark.slow
def test_parameter_servers_learn_digits(capsys):
    example = runpy.run_path(str(EXAMPLES / "parameter_server.py"))
    assert example["main"](steps=60) >= 0.9
    assert "pulled in the order first/kernel" in capsys.readouterr().out


def test_a_dict_of_arrays_learns_digits():
    example = runpy.run_path(str(EXAMPLES / "plain_pytrees.py"))
    assert example["main"](steps=100) >= 0.9


@pytest.mark.long
@pytest.mark.parametrize("name", ["plain_jit.py", "plain_jit_nnx.py"])
def test_a_plain_program_with_sharded_weights_learns_digits(name, capsys):
    example = runpy.run_path(str(EXAMPLES / name))
    assert example["main"](steps=100) >= 0.9
    assert "float32[64@fsdp,128]" in capsys.readouterr().out


@pytest.mark.slow
def test_one_digit_for_each_worker():
    example = runpy.run_path(str(EXAMPLES / "heterogeneous_gossip.py"))
    found = example["main"](steps=300)
    (exact, _), (biased, _), (corrected, _) = found.values()
    assert abs(corrected - exact) < 0.2 * (biased - exact)


@pytest.mark.slow
def test_sixty_four_emulated_workers_learn():
    example = runpy.run_path(str(EXAMPLES / "emulated_workers.py"))
    found = example["main"](steps=24)
    assert min(found.values()) >= 0.7


@pytest.mark.long
def test_a_compressor_of_ones_own_learns_digits():
    example = runpy.run_path(str(EXAMPLES / "custom_compressor.py"))
    accuracy, fewer = example["main"](steps=60)
    assert accuracy >= 0.7
    assert fewer > 30


def loaded(file: Path) -> tasks.Task:
    return tasks.task_of(tasks.load(str(file))[0](0))


def trained(task: tasks.Task, steps: int) -> tuple[list[float], tuple]:
    """Losses of two emulated workers, and one model with its own state."""
    mesh = relaxjax.emulate(2)
    tx = optax.chain(relaxjax.all_reduce("data"), optax.adamw(task.learning_rate))
    state = [*relaxjax.init(tx, task.params, mesh)]
    if task.state is not None:
        state.append(relaxjax.to_workers(task.state, mesh))
    step = relaxjax.data_parallel(tasks.train_step_of(task, tx), mesh)
    batches, losses = task.batches(0, task.batch_size), []
    for _ in range(steps):
        *state, metrics = step(*state, next(batches))
        losses.append(float(metrics["loss"]))
    return losses, tuple(map(relaxjax.consensus, (state[0], *state[2:])))


@pytest.mark.few(2)
@pytest.mark.parametrize("file", TASK_FILES, ids=lambda file: file.stem)
def test_a_task_file_is_learned_by_two_workers(file):
    task = loaded(file)
    losses, model = trained(task, steps=40)
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    start = (task.params,) if task.state is None else (task.params, task.state)
    assert task.validation is not None
    for metric in (task.metric, task.validation):
        gain = float(metric(*model)) - float(metric(*start))
        assert gain > 0 if task.better == "higher" else gain < 0


@pytest.mark.few(3)
@pytest.mark.parametrize("file", TASK_FILES, ids=lambda file: file.stem)
def test_a_task_file_is_short_and_its_seed_is_the_models(file):
    most = 60 if file == SKELETON else 80
    assert len(file.read_text().splitlines()) <= most
    loaded(file)
    make, _ = tasks.load(str(file))
    one, again, other = make(1), make(1), make(2)
    leaves = [jax.tree.leaves(task.params) for task in (one, again, other)]
    assert all(map(np.array_equal, leaves[0], leaves[1]))
    assert not all(map(np.array_equal, leaves[0], leaves[2]))
    assert one.data == other.data


def test_statistics_and_keys_of_an_nnx_task_move():
    task = loaded(EXAMPLES / "tasks" / "with_nnx.py")
    _, (_, state) = trained(task, steps=3)
    before, after = (
        {jax.tree_util.keystr(path): x for path, x in found}
        for found in map(jax.tree_util.tree_leaves_with_path, (task.state, state))
    )
    assert any("count" in name for name in before)
    for name, x in after.items():
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            continue  # worker 0's own, of which the count is drawn
        assert not np.array_equal(x, before[name]), name


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(5))
def test_two_means_lose_what_they_declare(seed):
    compressor = runpy.run_path(str(EXAMPLES / "custom_compressor.py"))["two_means"]()
    x = np.random.default_rng(seed).normal(seed / 2, 1, 37).astype(np.float32)
    above = x >= 0
    sides = [x[side].mean() if side.any() else 0.0 for side in (~above, above)]
    found = compression.roundtrip(compressor, jnp.asarray(x))
    np.testing.assert_allclose(found, np.where(above, sides[1], sides[0]), rtol=1e-6)
    lost = float(np.sum((found - x) ** 2))
    assert lost <= (1 - compressor.law.delta(37)) * float(np.sum(x**2))
    assert compression.payload_bytes(compressor, jnp.asarray(x)) == 5 + 8


@pytest.fixture
def production():
    return runpy.run_path(str(EXAMPLES / "production.py"))


@pytest.mark.long
def test_production_falls_back_and_goes_on_to_the_bit(production, tmp_path):
    """A run that is cut before and after it falls back ends as one that is not."""
    seen: list[tuple[int, dict[str, float]]] = []
    how = {"most_owed": 1.0}
    log = {"log": lambda step, numbers: seen.append((step, numbers))}
    whole = production["main"](tmp_path / "whole", 60, **how, **log)
    fell = [step for step, numbers in seen if "falls back to all_reduce" in numbers]
    assert fell == [20]
    assert [n["loss"] for _, n in seen if "loss" in n][-1] < 1
    for steps in (20, 40, 60):
        again = production["main"](tmp_path / "cut", steps, **how)
    assert again == whole
    assert sorted(path.name for path in (tmp_path / "cut").iterdir()) == [
        "plain",
        "relaxed",
    ]


def test_what_is_owed_when_production_falls_back_is_delivered(production):
    """The next mean gradient has the mean residual in it, and Adam its moments."""
    mesh, params = relaxjax.emulate(4), {"w": jnp.zeros((20, 10))}
    rng = np.random.default_rng(0)
    grads = jnp.asarray(rng.normal(size=(4, 20, 10)), jnp.float32)
    nothing = {"w": jnp.zeros((4, 20, 10))}
    tx = production["RELAXED"]
    stacked, opt_state = relaxjax.init(tx, params, mesh)
    update = jax.vmap(lambda g, s: tx.update({"w": g}, s)[1], axis_name="data")
    state = production["State"](stacked, update(grads, opt_state), nothing)
    fresh = production["State"](
        *relaxjax.init(production["PLAIN"], params, mesh), nothing
    )
    after = production["fall_back"](state, fresh)
    sent = (
        10 * optax.tree.get(after.opt_state, "mu")["w"]
    )  # Adam's first moment, b1 0.9
    np.testing.assert_allclose(
        sent[0] + after.owed["w"].mean(0), grads.mean(0), rtol=1e-5, atol=1e-6
    )


@pytest.mark.slow
def test_production_in_two_processes(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "relaxjax", "run", "production.py", str(tmp_path)],
        cwd=EXAMPLES,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(EXAMPLES.parent)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "falls back to all_reduce" in done.stdout

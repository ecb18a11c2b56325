"""Task files: ten broken ones, each named by what is wrong, and whole ones."""

import hashlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from relaxjax import tasks
from relaxjax.tasks import TASKS, load, of_arrays, task_of

GOOD = """
import jax.numpy as jnp, numpy as np
from relaxjax.tasks import of_arrays

X = np.linspace(-1, 1, 40, dtype=np.float32)

def loss(w, rows):
    return jnp.mean((w["a"] * rows["x"] - rows["y"]) ** 2)

def task(seed):
    rows = {"x": X, "y": 3 * X}
    how = dict(params={"a": jnp.zeros(())}, loss=loss, metric=loss, train=rows)
    return of_arrays(**how, test=rows)
"""
BROKEN = {
    "no file": (None, "there is no such file.*--skeleton"),
    "syntax": (GOOD.replace("def task(seed):", "def task(seed)"), r"my.py:10 is not"),
    "import": ("import nowhere_at_all", "cannot be run: ModuleNotFoundError"),
    "no function": (
        GOOD.replace("def task", "def other"),
        r"no function 'task'.*other",
    ),
    "no task": (
        GOOD.replace("of_arrays(**how, test=rows)", "3"),
        "returns int, and must return",
    ),
    "raises": (GOOD.replace("return of", "1 / 0; return of"), "raised ZeroDivision"),
    "loss of rows": (GOOD.replace("jnp.mean", ""), r"loss\(params, batch\).*\(2,\)"),
    "loss arguments": (GOOD.replace("loss(w, rows)", "loss(w)"), "cannot be computed"),
    "no floats": (GOOD.replace("jnp.zeros(())", "jnp.zeros((), int)"), "nothing to tr"),
    "no params": (GOOD.replace('{"a": jnp.zeros(())}', "{}"), "nothing to train"),
    "unequal": (GOOD.replace('"y": 3 * X', '"y": X[1:]'), r"train=.*equally many rows"),
    "no test": (GOOD.replace("test=rows", "test=()"), "test=.*at least one"),
    "metric": (
        GOOD.replace("metric=loss", "metric=lambda w, r: r['x']"),
        "metric.*single",
    ),
    "state": (GOOD.replace("(**how,", "(**how, state=X,"), "state"),
    "better": (
        GOOD.replace("(**how,", "(**how, better='more',"),
        "'higher' or 'lower'",
    ),
}


@pytest.mark.parametrize(("text", "says"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_named_with_what_to_add(tmp_path, text, says):
    path = tmp_path / "my.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=says) as error:
        load(str(path))[0](0)
    assert "my.py" in str(error.value)


def test_a_whole_file(tmp_path):
    path = tmp_path / "my.py"
    path.write_text(GOOD + "\ndef second(seed):\n    return task(seed)\n")
    for name in ("", ":second"):
        make, digest = load(f"{path}{name}")
        assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
        assert float(make(0).metric({"a": jnp.ones(())})) > 0


def rows(count: int) -> dict[str, np.ndarray]:
    return {"x": np.arange(count, dtype=np.float32), "i": np.arange(count)}


def mean(params, data):
    return params * jnp.mean(data["x"])


def test_validation_rows_are_split_off_once_for_all_seeds():
    def make(seed: int) -> tasks.Task:
        params = jnp.full((), 1.0 + seed)
        how = {"params": params, "loss": mean, "metric": mean}
        return of_arrays(**how, train=rows(40), test=rows(7))

    seen = []
    for seed in (0, 1):
        task = make(seed)
        assert task.validation is None
        split = task_of(task)
        assert split.validation is not None
        batches = split.batches(seed, 36)
        trained = {int(i) for i in next(batches)["i"]} | {
            int(i) for i in next(batches)["i"]
        }
        seen.append(trained)
        kept = set(range(40)) - trained
        assert len(kept) == 4
        expected = np.mean(sorted(kept))
        np.testing.assert_allclose(split.validation(jnp.ones(())), expected, rtol=1e-6)
        np.testing.assert_allclose(split.metric(jnp.ones(())), 3.0)
        assert split.data == task.data
        assert "4 of 40" in split.split_note
    assert seen[0] == seen[1]


def test_validation_of_ones_own_stays():
    how = {"params": jnp.ones(()), "loss": mean, "metric": mean}
    task = of_arrays(**how, train=rows(8), test=rows(4), validation=rows(2))
    assert task_of(task) is task
    assert task.validation is not None
    np.testing.assert_allclose(task.validation(task.params), 0.5)


@pytest.mark.parametrize("name", TASKS)
def test_built_in_tasks_can_be_split(name):
    task = TASKS[name](0)
    split = task_of(task)
    assert split.data == task.data
    assert split.validation is not None
    held_out = float(task.metric(task.params))
    assert float(split.metric(split.params)) == held_out
    assert float(split.validation(split.params)) != held_out


def test_a_task_that_cannot_be_split_says_so():
    task = tasks.Task(
        name="mine",
        metric_name="loss",
        data=tasks.Data(bytes=0, sha256=""),
        params=jnp.ones(()),
        loss=mean,
        metric=jax.jit(lambda x: x),
        batches=lambda seed, rows: iter(()),
        steps=1,
        batch_size=1,
        learning_rate=0.1,
    )
    with pytest.raises(ValueError, match="'mine' has no validation data"):
        task_of(task)

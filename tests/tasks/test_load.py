"""Task files: ten broken ones, each named by what is wrong, and whole ones."""

import hashlib
import re
import sys

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


def changed(before: str, after: str, text: str = GOOD) -> str:
    assert before in text
    return text.replace(before, after)


def with_state(returns: str) -> str:
    """The good file with a state, and another end of its loss."""
    text = changed("(**how,", "(**how, state={'n': jnp.zeros(2)},")
    text = changed("loss(w, rows)", "loss(w, state, rows)", text)
    text = changed("    return jnp.mean", "    loss = jnp.mean", text)
    text = changed("** 2)\n", f"** 2)\n    return {returns}\n", text)
    return changed("metric=loss", "metric=lambda w, s, rows: 0.0", text)


DEFINED = "tasks.of_arrays"
"""Of each broken file: its text, what is wrong, the rule, and the line to write."""
BROKEN = {
    "no file": (None, "my.py: there is no such file", "--skeleton", "my.py`"),
    "syntax": (changed("def task(seed):", "def task(seed)"), "my.py:10 is not Python"),
    "import": ("import x\nimport nowhere_at_all", "my.py:1 cannot be run", "'x'"),
    "raises": ("a = 1\nb = a / 0", "my.py:2 cannot be run", "ZeroDivisionError"),
    "leaves": ("import sys\nsys.exit(3)", "my.py:2 cannot be run", "SystemExit: 3"),
    "no function": (
        changed("def task", "def other"),
        "my.py has no function 'task' (it has loss, other)",
        "add `def task(seed):`, or name another one as ",
        "my.py:NAME",
    ),
    "not a function": (
        "task = 3",
        "has no function 'task', but a value of type int (it has none)",
    ),
    "seed": (
        changed("def task(seed)", "def task()"),
        "my.py: task takes ()",
        "is called with (seed): write `def task(seed):`",
    ),
    "no task": (
        changed("of_arrays(**how, test=rows)", "3"),
        "my.py: task(seed) returns a value of type int, and must return a relaxjax.ta",
        "`return relaxjax.tasks.of_arrays(params=..., loss=..., metric=..., train=...",
    ),
    "nothing": (changed("return of", "of"), "returns nothing", DEFINED),
    "task raises": (
        changed("return of", "1 / 0; return of"),
        "my.py:13: task(0) raised ZeroDivisionError: division by zero",
    ),
    "loss of rows": (
        changed("jnp.mean", ""),
        "my.py: task(seed): loss(params, batch) has the shape (2,)",
        "must be a single number: end it with `return jnp.mean(...)`",
    ),
    "integer loss": (
        changed("return jnp.mean", "return 0 * jnp.argmax"),
        "loss(params, batch) has dtype int32, which has no gradient",
        "`jnp.mean(...)` of floats",
    ),
    "two losses": (
        changed("    return jnp.mean", "    return 0.0, jnp.mean"),
        "loss(params, batch) returns 2 values, and must return a single number",
        "`state=...`",
    ),
    "loss arguments": (
        changed("loss(w, rows)", "loss(w)"),
        "my.py:13: task(0) raised ValueError: of_arrays: loss takes (w) (too many",
        "is called with (params, batch): write `def loss(params, batch):`",
    ),
    "loss raises": (
        changed('rows["y"]', 'rows["z"]'),
        "my.py: task(seed): loss(params, batch) cannot be computed; ",
        "my.py:8 raised KeyError: 'z'",
    ),
    "no optimizer": (
        changed("test=rows", "test=rows, optimizer=lambda rate: 3"),
        "my.py: task(seed): optimizer(learning_rate) returns a value of type int",
        "`optimizer=lambda rate: optax.sgd(rate, 0.9)`",
    ),
    "optimizer raises": (
        changed("test=rows", "test=rows, optimizer=lambda rate: len(rate)"),
        "my.py: task(seed): optimizer(learning_rate) cannot be computed; ",
    ),
    "no floats": (
        changed("jnp.zeros(())", "jnp.zeros((), int)"),
        "my.py: task(seed): params['a'] has dtype int32, which has no gradient",
        "all params must be arrays of floats: give counts, keys and the like as `state",
    ),
    "some floats": (
        changed('{"a"', '{"n": 3, "a"'),
        "params['n'] has dtype int32",
    ),
    "functions": (
        changed('{"a"', '{"f": len, "a"'),
        "params['f'] is a value of type builtin_function_or_method",
        "`params, rest = equinox.partition(model, equinox.is_inexact_array)`",
    ),
    "no params": (
        changed('{"a": jnp.zeros(())}', "{}"),
        "params={} has no arrays, so that there is nothing to train: give",
        "`params={'w': jnp.zeros(3)}`",
    ),
    "unequal": (
        changed('"y": 3 * X', '"y": X[1:]'),
        "my.py:13: task(0) raised ValueError: train={'x': (40,), 'y': (39,)} must be",
        "equally many rows",
        "`train={'x': x[:n], 'y': y[:n]}`",
    ),
    "unequal test": (
        changed("test=rows", "test={'x': X, 'y': X[1:]}"),
        "test={'x': (40,), 'y': (39,)} must be arrays with equally many rows",
    ),
    "no test": (
        changed(", test=rows", ""),
        "my.py:13: task(0) raised TypeError: of_arrays() missing 1 required",
        "'test'; write `return relaxjax.tasks.of_arrays(",
    ),
    "empty test": (
        changed("test=rows", "test={'x': X[:0], 'y': X[:0]}"),
        "test={'x': (0,), 'y': (0,)} has no rows: give arrays with a row for each",
        "`test={'x': x_test, 'y': y_test}`",
    ),
    "words": (
        changed('"y": 3 * X', '"y": X.astype(str)'),
        "train has an array of <U",
        "`_, y = np.unique(y, return_inverse=True)`",
    ),
    "metric of rows": (
        changed("metric=loss", "metric=lambda w, r: r['x']"),
        "my.py: task(seed): metric has the shape (40,), and must be a single number",
        "`return jnp.mean(...)`",
    ),
    "metric arguments": (
        changed("metric=loss", "metric=lambda w: 0.0"),
        "of_arrays: metric takes (w)",
        "write `def metric(params, rows):`",
    ),
    "batch": (
        changed("(**how,", "(**how, batch_size=41,"),
        "my.py:13: task(0) raised ValueError: batch_size=41 must be from 1 to the 40 r",
        "write `batch_size=40`",
    ),
    "state, and a loss without it": (
        changed("(**how,", "(**how, state=X,"),
        "of_arrays: loss takes (w, rows)",
        "write `def loss(params, state, batch):`",
    ),
    "state that is not returned": (
        with_state("loss"),
        "my.py: task(seed) has a state=, and its loss(params, state, batch) does not",
        "end it with `return loss, state`",
    ),
    "state of another tree": (
        with_state("loss, state['n']"),
        "the state that its loss returns is another tree than state=: (2,), not {'n'",
        "`return loss, state`",
    ),
    "state of another shape": (
        with_state("loss, {'n': jnp.zeros(3)}"),
        "state['n'] is float32[2], and float32[3] after its loss: a state keeps its",
        "`new.astype(old.dtype)`",
    ),
    "better": (
        changed("(**how,", "(**how, better='more',"),
        "better='more' must be 'higher' or 'lower'",
    ),
    "batches that end": (
        changed("return of_arrays(**how, test=rows)", "")
        + "    import dataclasses\n    return dataclasses.replace("
        "of_arrays(**how, test=rows), batches=lambda seed, rows: [])",
        "my.py: task(seed): batches(seed, rows) cannot be computed; ",
        "`while True: yield ...`",
    ),
    "batches of other rows": (
        changed("return of_arrays(**how, test=rows)", "")
        + "    import dataclasses\n    return dataclasses.replace("
        "of_arrays(**how, test=rows), batches=lambda seed, n: iter([rows]))",
        "batches(seed, rows=2) yields arrays of the shapes {'x': (40,), 'y': (40,)}",
        "`yield {'x': x[picked], 'y': y[picked]}`",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_with_what_to_add(name, tmp_path):
    text, *says = BROKEN[name]
    path = tmp_path / "my.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=r"my\.py") as error:
        load(str(path))[0](0)
    for part in says:
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("moon", "moon: there is no such task; there is digits, chars, or a file of"),
        ("my.txt", "my.txt: there is no such task"),
        ("folder.py", "folder.py cannot be read: Is a directory"),
        ("my.py:", "my.py: there is no such file"),
    ],
)
def test_what_is_not_a_file(source, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "my.txt").write_text(GOOD)
    with pytest.raises(ValueError, match=re.escape(says)):
        load(source)


BESIDE = """
from __future__ import annotations
import dataclasses
import beside_my_task

@dataclasses.dataclass
class Sizes:
    count: int = 40

def task(seed):
    import later_than_my_task
    return beside_my_task.task(seed)
"""


def test_modules_beside_a_file_are_found_and_only_while_it_runs(tmp_path):
    names = {"beside_my_task": GOOD, "later_than_my_task": "", "my": BESIDE}
    for name, text in names.items():
        (tmp_path / f"{name}.py").write_text(text)
    before = list(sys.path)
    make, _ = load(str(tmp_path / "my.py"))
    assert make(0).batch_size == 40
    assert sys.path == before


def test_a_whole_file(tmp_path):
    path = tmp_path / "my.py"
    path.write_text(GOOD + "\ndef second(seed):\n    return task(seed)\n")
    for name in ("", ":second"):
        make, digest = load(f"{path}{name}")
        assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
        assert float(make(0).metric({"a": jnp.ones(())})) > 0


def test_a_whole_file_with_a_state(tmp_path):
    path = tmp_path / "my.py"
    path.write_text(with_state("loss, {'n': state['n'] + 1}"))
    task = load(str(path))[0](0)
    assert task.state["n"].shape == (2,)


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


@pytest.mark.few(2)
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


SIZED = """
import jax.numpy as jnp, numpy as np
from relaxjax import tasks
from model import SIZE
def loss(w, r): return jnp.mean((r["x"] @ w) ** 2)
def task(seed):
    from later import NAME
    x = {"x": np.ones((20, SIZE), np.float32)}
    how = {"loss": loss, "metric": loss, "train": x, "test": x}
    made = tasks.of_arrays(params=jnp.ones(SIZE), **how)
    return dataclasses.replace(made, name=NAME)
"""


def test_each_file_has_the_modules_beside_it(tmp_path):
    """Two folders with modules of the same names; and one that was edited since."""
    makes = []
    for name, size in (("a", 1), ("b", 5)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.py").write_text(f"SIZE = {size}")
        (folder / "later.py").write_text(f"NAME = {name!r}")
        (folder / "mine.py").write_text("import dataclasses" + SIZED)
        makes.append(load(str(folder / "mine.py"))[0])
    found = [(make(0).name, make(0).params.size) for make in (*makes, *makes)]
    assert found == [("a", 1), ("b", 5)] * 2
    (tmp_path / "a" / "model.py").write_text("SIZE = 12")
    again, _ = load(str(tmp_path / "a" / "mine.py"))
    assert again(0).params.size == 12

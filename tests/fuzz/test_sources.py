"""Task files and graphs with mistakes in them: refused by name, or still right.

`pytest -m slow tests/fuzz/test_sources.py` tries 10 000 of each.
"""

import contextlib
import io
import json
import random
import re
import warnings

import pytest

from relaxjax import schedule, tasks
from tests.fuzz.mutate import changed

TASK = """
import jax.numpy as jnp
import numpy as np

from relaxjax.tasks import Task, of_arrays


def task(seed: int) -> Task:
    rows = {"x": np.ones((12, 3), np.float32), "y": np.zeros(12, np.float32)}
    return of_arrays(
        name="line",
        params={"w": jnp.zeros(3), "b": jnp.zeros(())},
        loss=loss,
        metric=loss,
        metric_name="error",
        better="lower",
        train=rows,
        test=rows,
        steps=3,
        batch_size=4,
        learning_rate=0.1,
    )


def loss(params, batch):
    return jnp.mean((batch["x"] @ params["w"] + params["b"] - batch["y"]) ** 2)
"""
WORD = re.compile(r"\w+|[^\w\s]|\n *")
WORDS = WORD.findall(TASK)
ODD = (
    *("None", "0", "-1", "float('nan')", "''", "()", "{}", "lambda: 0", "1j", "'a'"),
    *("np.ones(3)", "jnp.zeros((0, 3))", "np.int64(4)", "object()", "print", "np"),
    *("raise SystemExit", "1 / 0", "return", "def", "(", ")", "\n", "\x00", "é"),
)
GRAPH = {
    "recvs": {"w1": 1.0, "w2": 2.0, "w3": 0.5},
    "ops": {"a": [1.0, ["w1"]], "b": [2.0, ["a", "w2"]], "c": [0.5, ["b", "w3"]]},
}


def mistaken(rng: random.Random) -> str:
    """The task file with one or two of its words replaced, dropped or swapped."""
    words = list(WORDS)
    for _ in range(rng.randint(1, 2)):
        i, j = rng.randrange(len(words)), rng.randrange(len(words))
        how = rng.random()
        if how < 0.5:
            words[i] = rng.choice(ODD)
        elif how < 0.8:
            del words[i]
        else:
            words[i], words[j] = words[j], words[i]
    return spelled(words)


def spelled(words: list[str]) -> str:
    """Words with blanks between names, which Python needs."""
    text = ""
    for word in words:
        apart = text[-1:].isidentifier() or text[-1:].isdigit()
        text += " " * (apart and word[:1].isidentifier()) + word
    return text


def test_the_file_without_mistakes_is_a_task(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(spelled(WORDS))
    make, _ = tasks.load(str(path))
    assert make(0).steps == 3


@pytest.mark.parametrize(
    "count", [40, pytest.param(10_000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_task_files(count, tmp_path):
    rng, path, read = random.Random(0), tmp_path / "mine.py", 0
    for _ in range(count):
        text = mistaken(rng)
        path.write_text(text)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")  # SyntaxWarning of the file's own
            try:
                task, refused = tasks.load(str(path))[0](0), ""
            except ValueError as error:
                task, refused = None, str(error)
        if task is None:
            assert "mine.py" in refused, (text, refused)
            continue
        read += 1
        assert task.steps >= 1, text
        assert task.batch_size >= 1, text
    assert 0 < read < count


@pytest.mark.parametrize(
    "count", [300, pytest.param(10_000, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_graphs(count):
    """A graph from JSON that is taken has an order, between its bounds."""
    rng, taken, refused = random.Random(0), 0, []
    for _ in range(count):
        what = GRAPH
        for _ in range(rng.randint(1, 2)):
            what = changed(what, rng)
        if not isinstance(what, dict) or not set(what) <= set(GRAPH):
            continue
        shown = json.dumps(what)
        try:
            graph = schedule.Graph(**what)
        except (TypeError, ValueError) as error:
            refused.append((str(error), shown))
            continue
        taken += 1
        order = schedule.tac(graph)
        assert sorted(order) == sorted(graph.recvs), shown
        lower, upper = schedule.bounds(graph)
        assert lower <= schedule.makespan(graph, order) * (1 + 1e-9), shown
        assert schedule.makespan(graph, order) <= upper * (1 + 1e-9), shown
    assert 0 < taken < count
    assert all(len(said) > 10 for said, _ in refused), refused

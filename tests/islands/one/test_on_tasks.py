"""Islands train real tasks, one of them comes back, and one program emulates them."""

import threading
from typing import Any

import jax
import optax
import pytest

from relaxjax import islands, tasks
from relaxjax.islands.common import _log as log
from relaxjax.islands.one import _past as _again

HOW: dict[str, Any] = {
    "sync_every": 4,
    "fragments": 2,
    "quorum": 2,
    "grace": 0.02,
    "keep": True,
    "poll": 0.005,
    "pace": 60.0,
    "lost_after": 60.0,
    "cap": None,  # no table says which tokens of a fast island count
}
ROWS = 8


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        pytest.param("digits", 0.1, marks=pytest.mark.slow),
        pytest.param("chars", 0.01, marks=pytest.mark.slow),
    ],
)
def test_islands_are_emulated_on(name, rate, tmp_path):
    """To rounding, whatever the order of offers was."""
    task, tx = tasks.TASKS[name](0), optax.sgd(rate, momentum=0.5)
    step = jax.jit(tasks.train_step_of(task, tx))
    step(task.params, tx.init(task.params), next(task.batches(0, ROWS)))

    def live(island: str, merges: int) -> None:
        with islands.join(task.params, f"folder:{tmp_path}", island, **HOW) as it:
            params, opt_state = it.params, tx.init(it.params)
            batches = task.batches(it.seed, ROWS)
            while it.version < merges:
                params, opt_state, _ = step(params, opt_state, next(batches))
                params = it.exchange(params, tokens=ROWS)

    for who, merges in (("ab", 4), ("abc", 10)):
        threads = [threading.Thread(target=live, args=(i, merges)) for i in who]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    store = islands.Folder(tmp_path)
    assert len(_again.stays(store)) == 5
    program = islands.Program(
        task.loss, tx, task.params, lambda seed: task.batches(seed, ROWS)
    )
    found = list(islands.emulate(store, program))
    assert len(found) == log.newest(store) >= 10
    for merge in found:
        assert merge.difference < 1e-4 * merge.scale, merge

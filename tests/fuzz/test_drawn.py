"""Random programs: right, refused by name, or warned of; and old faults are found.

`pytest -m slow tests/fuzz/test_drawn.py` runs 500, and puts faults of the past back.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import pytest
from jax.sharding import PartitionSpec as P

from tests.fuzz import drawn
from tests.fuzz.drawn import Program

SEEDS = 500


@pytest.mark.long
@pytest.mark.few(6)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_random_program_is_right_or_says_what_is_not(seed):
    program = drawn.draw(seed)
    verdict, words = drawn.verdict(program)
    assert verdict in ("right", "refused", "warned"), (program, words)
    if verdict != "right":
        assert words


def test_draws_reach_every_place_reducer_and_wrapper():
    """And no verdict hangs on what is never drawn."""
    programs = [drawn.draw(seed) for seed in range(SEEDS)]
    for field, all_of in (
        ("place", drawn.PLACES),
        ("reducer", drawn.REDUCERS),
        ("wrapper", drawn.WRAPPERS),
    ):
        assert {getattr(x, field) for x in programs} == set(all_of)
    assert len({x.row for x in programs}) > 100


def no_layouts(monkeypatch: Any) -> None:
    """Leaves of different layouts share buckets."""
    one = "relaxjax._core._buckets.marks_of"
    monkeypatch.setattr(one, lambda tree, _: [0] * len(jax.tree.leaves(tree)))


def typed_by_shape(monkeypatch: Any) -> None:
    """State that is no leaf's part is called the same on all devices."""

    def spec(kind: Any, x: Any, workers: Any) -> Any:
        sharding = jax.typeof(x).sharding
        own = kind.shape[1:] == sharding.shard_shape(x.shape)
        return P(workers, *sharding.spec.partitions) if own else P(workers)

    monkeypatch.setattr("relaxjax._core.layouts._state_specs._spec", spec)


def slices_unlooked_at(monkeypatch: Any) -> None:
    """Another branch is checked, on whole leaves, than runs on slices."""
    for room in ("fsdp._init", "ps._parameter_server"):
        monkeypatch.setattr(f"relaxjax.{room}.require_same_by_slice", lambda *_: None)


def norms_over_slices(monkeypatch: Any) -> None:
    """Whether an update is elementwise is not asked beside relaxations."""
    monkeypatch.setattr("relaxjax.fsdp._init.require_elementwise", lambda *_: None)


def blind_to_arguments(monkeypatch: Any) -> None:
    """An update that needs an argument is not looked at."""

    def alone(look: Any, params: Any, given: Any) -> Any:
        del params, given
        return look(extra_args({}))

    from relaxjax._core.traced._extra_args import extra_args

    monkeypatch.setattr("relaxjax.workers._startup_agreement.with_extra_args", alone)


def each_decides_alone(monkeypatch: Any) -> None:
    """A worker's own gradient may decide whether it communicates."""
    monkeypatch.setattr(
        "relaxjax.workers.followed._traced._alone", lambda *_: frozenset()
    )


def one_phase_for_a_loop(monkeypatch: Any) -> None:
    """A loop over steps in a step is taken for one step."""
    name = "relaxjax.workers._step_programs.ticks_often"
    monkeypatch.setattr(name, lambda _: False)


PUT_BACK: dict[str, tuple[Callable[[Any], None], Callable[[Program], bool]]] = {
    "1, buckets of several layouts": (
        no_layouts,
        lambda x: x.place == "specs" and x.reducer in drawn.CODED,
    ),
    "2, state typed by shape": (
        typed_by_shape,
        lambda x: x.place == "unreduced" and x.reducer.startswith(("power", "acp")),
    ),
    "4, another branch for slices": (
        slices_unlooked_at,
        lambda x: x.place in ("fsdp", "server") and x.row in BY_SHAPE,
    ),
    "5, norms of slices beside islands": (
        norms_over_slices,
        lambda x: x.place == "fsdp over" and x.row in BY_NORM,
    ),
    "6, updates that need arguments": (
        blind_to_arguments,
        lambda x: x.place == "behind" and bool(drawn.ROWS[x.row].arguments),
    ),
    "10, decisions of one worker": (
        each_decides_alone,
        lambda x: x.place == "behind" and x.nan and x.wrapper in DECIDING,
    ),
    "11, a scan of steps": (
        one_phase_for_a_loop,
        lambda x: x.place == "scanned" and x.reducer == "power_sgd, later",
    ),
}
BY_SHAPE = {"adamw, decay of matrices", "partition", "multi_transform", "masked"}
BY_NORM = {"clip_by_global_norm", "lamb", "lars", "adaptive_grad_clip", "novograd"}
DECIDING = {"skipping MultiSteps", "apply_if_finite"}


def drawn_like(wanted: Callable[[Program], bool]) -> Iterator[Program]:
    """The first programs of the kind, of more seeds than are run."""
    return filter(wanted, map(drawn.draw, range(20 * SEEDS)))


@pytest.mark.long
@pytest.mark.few(1)
@pytest.mark.parametrize("name", PUT_BACK)
def test_a_fault_that_is_put_back_is_found(name, monkeypatch):
    """Among ten programs of the kind, each of them right or refused without it."""
    put_back, wanted = PUT_BACK[name]
    some = [x for _, x in zip(range(10), drawn_like(wanted), strict=False)]
    put_back(monkeypatch)
    wrong = (x for x in some if drawn.verdict(x)[0] in ("wrong", "broken"))
    program = next(wrong, None)
    assert program is not None
    monkeypatch.undo()
    assert drawn.verdict(program)[0] in ("right", "refused", "warned")

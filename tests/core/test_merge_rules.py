"""Each rule on arrays that a person can check, without a state or a training."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
import pytest

from relaxjax._core import _merge_rules as rules
from relaxjax._core._merge_rules import Leaf, MergeRule, all_alike, marks_of


def array_of(dtype: Any) -> Callable[[Any], np.ndarray]:
    return lambda rows: np.array(rows, dtype)


float16, float32 = array_of(np.float16), array_of(np.float32)
int32, complex64 = array_of(np.int32), array_of(np.complex64)


def leaf(path: str = "x", node: Any = None, **arrays: tuple[Any, Any]) -> Leaf:
    """A leaf among arrays by path, each as the old workers have it and as `init`."""
    at = {name.replace("__", "/"): pair for name, pair in arrays.items()}

    def saved(path):
        return np.asarray(at[path][0])

    def made(path):
        return np.asarray(at[path][1])

    return Leaf("state.x", path, saved, made, node)


def merged(rule: MergeRule, old: Any, new_shape: tuple[int, ...]) -> np.ndarray:
    one = leaf(x=(old, np.zeros(new_shape)))
    if rule.merge:
        return rule.merge(one, one.rows)
    assert rule.rebuilt
    return rule.rebuilt(one, lambda leaf, rows: rows)


def test_the_mean_goes_to_all():
    out = merged(rules.MEAN, float32([[1, 2], [3, 5], [8, 2]]), (2, 2))
    assert out.dtype == np.float32
    assert out.tolist() == [[4, 3], [4, 3]]


@pytest.mark.parametrize("rule", [rules.MEAN, rules.EQUAL])
def test_a_lone_worker_hands_on_its_row(rule):
    assert merged(rule, [[1, 2]], (3, 2)).tolist() == [[1, 2]] * 3


def test_the_mean_of_equal_rows_is_the_row_to_the_bit():
    row = float32([0.1, -0.0, 1e38])
    out = merged(rules.MEAN, np.stack([row] * 3), (5, 3))
    assert all(x.tobytes() == row.tobytes() for x in out)


def test_the_mean_of_narrow_and_complex_rows_is_worked_out_wide():
    out = merged(rules.MEAN, float16([[60000.0], [40000.0], [20000.0]]), (1, 1))
    assert out.tolist() == [[40000.0]]
    assert out.dtype == np.float16
    out = merged(rules.MEAN, complex64([[1 + 2j], [3 + 6j]]), (3, 1))
    assert out.dtype == np.complex64
    assert out.tolist() == [[2 + 4j]] * 3


def test_the_sum_stays_though_workers_are_fewer_or_more():
    old = float32([[1, 2], [3, 4], [8, 9]])
    for workers in (1, 2, 6):
        out = merged(rules.SUM, old, (workers, 2))
        assert out.dtype == np.float32
        np.testing.assert_allclose(out.sum(0), [12, 15], rtol=1e-6)
        assert all_alike(out)
    out = merged(rules.SUM, complex64([[1j], [2]]), (1, 1))
    assert out.tolist() == [[2 + 1j]]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((2, 3), [[0, 1, 2], [3, 4, 5]]),
        ((3, 2), [[0, 1], [2, 3], [4, 5]]),
        ((2, 4), [[0, 1, 2, 3], [4, 5, 0, 0]]),  # padded
        ((2, 2), [[0, 1], [2, 3]]),  # of padding, cut off
    ],
)
def test_slices_are_joined_and_cut_anew(shape, expected):
    old = int32([[0, 1], [2, 3], [4, 5]])
    out = merged(rules.SHARD, old, shape)
    assert out.tolist() == expected
    assert out.dtype == np.int32


def test_slices_that_several_workers_hold():
    """Three slices on six workers become two on five."""
    old = float32([[0, 1], [2, 3], [4, 5]] * 2)
    one = leaf(x=(old, np.zeros((5, 3))))
    out = rules.resliced(one, old, 3, 2)
    assert out.tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5], [0, 1, 2]]


def test_slices_that_are_no_vectors_merge_by_mean():
    assert merged(rules.SHARD, float32([1, 3]), (3,)).tolist() == [2, 2, 2]
    old = float32([[[1.0]], [[5.0]]])
    assert merged(rules.SHARD, old, (1, 1, 1)).tolist() == [[[3]]]


def test_equal_rows_go_to_all_and_others_are_named():
    out = merged(rules.EQUAL, [[1, 2], [1, 2]], (3, 2))
    assert out.tolist() == [[1, 2]] * 3
    old = np.arange(15).reshape(3, 5)
    old[1] = old[0]
    message = r"'state.x'.*worker 0 has \[0 1 2 3\] \.\., worker 2 has \[10 11 12 13\]"
    with pytest.raises(ValueError, match=message):
        merged(rules.EQUAL, old, (2, 5))
    with pytest.raises(
        ValueError, match=r"worker 0 has \[0 0 0 0\], worker 1 has \[1 1 1 1\]\."
    ):
        merged(rules.EQUAL, [[0] * 4, [1] * 4], (2, 4))


def test_a_reset_gives_what_init_gave():
    one = leaf(x=([[1.0], [2.0]], [[7.0]]))
    assert rules.RESET.rebuilt
    assert rules.RESET.rebuilt(one, lambda leaf, rows: rows).tolist() == [[7.0]]


def test_all_alike_looks_at_bits():
    assert all_alike(np.array([np.nan, np.nan]))
    assert not all_alike(np.array([0.0, -0.0]))
    assert not all_alike(np.array([1, 1, 2]))
    assert all_alike(np.array([1]))


def test_a_leaf_and_what_lies_beside_it():
    one = leaf(
        "x/w/kernel", x__w__kernel=([1], [2]), y__w__kernel=([3], [4]), y=([], [])
    )
    assert (one.rows, one.fresh, one.inside) == ([1], [2], "w/kernel")
    assert one.beside("y").path == "y/w/kernel"
    assert one._replace(path="x").inside == ""
    assert one._replace(path="x").beside("y").path == "y"


def test_a_leaf_in_slices_has_fewer_copies_than_rows():
    """Two islands of three slices become three of two."""
    one = leaf(x=(int32(range(6)), int32(range(10, 16))), y=(int32([9] * 6), [8] * 6))
    assert one.copies == (6, 6)  # whole, if nothing else is said
    one = one._replace(slices=(3, 2))
    assert one.copies == (2, 3)
    first, second = one._replace(slices=(3, 3)).of_each(3)[:2]
    assert (first.rows.tolist(), first.fresh.tolist()) == ([0, 3], [10, 13])
    assert (second.rows.tolist(), second.fresh.tolist()) == ([1, 4], [11, 14])
    assert second.copies == (2, 2)
    assert second.beside("y").rows.tolist() == [9, 9]
    assert len(one.of_each(2)) == 2


def test_rules_of_your_own():
    def rule(leaf: Leaf, merge: Callable) -> np.ndarray:
        return merge(leaf, leaf.rows)

    made = rules.rebuild(rule)
    assert made == MergeRule("rebuild", None, rule, "")
    assert rules.refuse("Why. What.") == MergeRule("refuse", None, None, "Why. What.")


def test_marks_are_read_from_annotations():
    class State(NamedTuple):
        plain: jax.Array
        noted: Annotated[jax.Array, "a note"]
        mean: Annotated[jax.Array, "a note", rules.MEAN, rules.SUM]
        text: "Annotated[jax.Array, rules.RESET]"

    hints = {"x": "NoSuchName", "y": Annotated[int, rules.SUM]}
    foreign = type("Foreign", (), {"__annotations__": hints})
    texts = {"x": "int", "y": "Annotated[int, rules.SUM]"}
    mixed = type("Mixed", (), {"__annotations__": texts, "__module__": __name__})
    assert marks_of(mixed) == {"y": rules.SUM}
    assert marks_of(State) == {"mean": rules.MEAN, "text": rules.RESET}
    assert marks_of(int) == {}
    assert marks_of(foreign) == {"y": rules.SUM}


def test_marks_are_inherited_and_may_be_absent():
    class Base:
        owed: Annotated[Any, rules.SUM]
        own: Annotated[Any, rules.RESET] | None
        text: "Annotated[Any, rules.SUM] | None"

    class Bare(Base):
        pass

    class Nearer(Base):
        own: Annotated[Any, rules.EQUAL]
        extra: int = 0

    marks = {"owed": rules.SUM, "own": rules.RESET, "text": rules.SUM}
    assert marks_of(Base) == marks_of(Bare) == marks
    assert marks_of(Nearer) == marks | {"own": rules.EQUAL}

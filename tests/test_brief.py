"""Which cases of a test are run: no test is left without one by being marked `few`."""

from itertools import chain
from types import SimpleNamespace
from typing import Any

import pytest

from conftest import SLOW, pytest_collection_modifyitems, spread_out

WORDS, NUMBERS = [object() for _ in range(3)], [object() for _ in range(4)]


class Case:
    """What the choice looks at of a case."""

    def __init__(self, name: str, params: dict[str, object], *marks: Any):
        self.nodeid, self.callspec = name, SimpleNamespace(params=params)
        self.marks = {mark.name: mark for mark in marks}

    def get_closest_marker(self, name: str) -> Any:
        return self.marks.get(name)

    def add_marker(self, mark: Any) -> None:
        self.marks[mark.name] = mark.mark


def table(*marks: Any) -> list[Any]:
    """Twelve cases of a test with two parameters."""
    return [
        Case(f"test_x[{i}-{j}]", {"word": word, "number": number}, *marks)
        for i, word in enumerate(WORDS)
        for j, number in enumerate(NUMBERS)
    ]


def run(items: list[Any], form: str = "", shard: str = "1/1") -> list[str]:
    """Ids of what is left for an ordinary run, or a shorter one."""
    select(items, form, shard)
    return [item.nodeid for item in items if not item.get_closest_marker("slow")]


def select(items: list[Any], form: str = "", shard: str = "1/1") -> list[Any]:
    """Marks the items and takes some out, which are returned."""
    gone: list[Any] = []
    options = {"--shard": shard, form: True}
    hook = SimpleNamespace(pytest_deselected=lambda items: gone.extend(items))
    config: Any = SimpleNamespace(getoption=lambda x: options.get(x, False), hook=hook)
    pytest_collection_modifyitems(config, items)
    return gone


@pytest.mark.parametrize(
    ("number", "quarter"), [(1, 1), (4, 1), (5, 2), (8, 2), (48, 12)]
)
def test_a_part_and_at_least_one_is_left_in_shorter_runs(number, quarter):
    few = pytest.mark.few(number).mark
    assert len(run(table(few))) == min(number, 12)
    assert len(run(table(few), "--quarter")) == quarter
    assert len(run(table(few), "--brief")) == quarter


def test_what_is_long_is_left_out_in_brief_alone():
    cases = [*table(), Case("test_y", {}, pytest.mark.long.mark)]
    assert len(run(cases)) == len(run(cases, "--quarter")) == 13
    assert "test_y" not in run(cases, "--brief")
    assert len(run(cases, "--brief")) == 12


def test_the_slow_suite_has_eight_times_as_many_and_every_has_all():
    def many(*marks: Any) -> list[Any]:
        return [Case(f"test_x[{i}]", {"i": object()}, *marks) for i in range(40)]

    few = pytest.mark.few(2).mark
    gone = select(cases := many(few))
    assert len(cases) == SLOW * 2
    assert len(gone) + len(cases) == 40
    assert not {item.nodeid for item in gone} & {item.nodeid for item in cases}
    assert sum(not item.get_closest_marker("slow") for item in cases) == 2
    assert select(cases := many(few), "--every") == []
    assert len(cases) == 40
    whole = pytest.mark.every.mark
    assert len(select(cases := many(whole))) == 40
    assert cases == []
    assert select(cases := many(whole), "--every") == []
    assert len(cases) == 40


def test_shards_are_parts_of_all():
    parts = [run(table(), shard=f"{k}/3") for k in (1, 2, 3)]
    assert sorted(chain.from_iterable(parts)) == sorted(run(table()))
    assert all(parts)
    with pytest.raises(pytest.UsageError, match="--shard 4/3 is no part"):
        run(table(), shard="4/3")


def test_cases_show_every_value_if_the_number_allows():
    chosen = spread_out(table(), 4)
    assert {name[7] for name in chosen} == set("012")
    assert {name[9] for name in chosen} == set("0123")

"""Which cases of a test are run: no test is left without one by being marked `few`."""

from types import SimpleNamespace
from typing import Any

import pytest

from conftest import pytest_collection_modifyitems, spread_out

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


def run(items: list[Any], form: str = "") -> list[str]:
    """Ids of what is left for an ordinary run, or a shorter one."""
    config: Any = SimpleNamespace(getoption=lambda name: name == form)
    pytest_collection_modifyitems(config, items)
    return [item.nodeid for item in items if not item.get_closest_marker("slow")]


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


def test_cases_show_every_value_if_the_number_allows():
    chosen = spread_out(table(), 4)
    assert {name[7] for name in chosen} == set("012")
    assert {name[9] for name in chosen} == set("0123")

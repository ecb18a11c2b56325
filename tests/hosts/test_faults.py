"""One process is lost, stuck, wrong or asked to stop: what the others do and say."""

import re
import sys

import pytest

from relaxjax import hosts
from tests.hosts.test_rows import ENVIRONMENT


def run(fault: str, who: int) -> tuple[hosts.Ended, list[list[str]]]:
    """How it ended, and what each process said."""
    said: list[list[str]] = [[], [], []]
    ended = hosts.launch(
        [sys.executable, "-m", "tests.hosts.faulty", fault, str(who), "20"],
        3,
        environment=ENVIRONMENT,
        grace=20,
        say=lambda number, _, line: said[number].append(line),
    )
    return ended, said


WORDS = {
    "kill": r"process {who} \(.*, pid \d+\) is lost: nothing was heard from it for 3 s",
    "hang": r"process {who} \(.*, pid \d+\) is stuck: it lives, .* heard of was 19",
    "raise": r"process {who} \(.*, pid \d+\) has failed: KeyError: 'lost key'",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "who"),
    [
        ("kill", 2),
        ("hang", 1),
        pytest.param("raise", 0, marks=pytest.mark.slow),
        pytest.param("raise", 2, marks=pytest.mark.slow),
    ],
)
def test_the_others_end_and_name_the_one(fault, who):
    ended, said = run(fault, who)
    assert ended.status != 0
    words = re.compile(WORDS[fault].format(who=who))
    for number in {0, 1, 2} - {who}:
        assert any(words.search(line) for line in said[number]), said


@pytest.mark.slow
def test_the_coordinator_is_killed():
    ended, said = run("kill", 0)
    assert ended.why.endswith("ended by SIGKILL")
    for lines in said[1:]:
        text = "\n".join(lines)
        assert re.search(r"ended by JAX's runtime because process 0 \(.*is lost", text)


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
def test_a_frozen_process(who):
    ended, said = run("freeze", who)
    assert ended.status != 0
    for number in {0, 1, 2} - {who}:
        text = "\n".join(said[number])
        assert re.search(rf"process {who} \(.*is lost", text), said


@pytest.mark.long
def test_one_is_asked_to_stop_and_all_do():
    ended, said = run("stop", 1)
    assert ended.status == 0, said
    # Process 0 waits for the others at exit, where Python 3.12 starts no thread.
    assert not [line for lines in said for line in lines if "Exception" in line]
    (last,) = {line for lines in said for line in lines if "stopped" in line}
    assert int(last.split()[-1]) > 20

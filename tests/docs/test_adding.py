"""Each block of the worked page stands in the file that it names."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"```\w+\n# (\S+)\n(.*?)```", re.S)
PAGE = (ROOT / "docs" / "adding.md").read_text()


def test_all_blocks_name_their_file():
    assert len(BLOCK.findall(PAGE)) == PAGE.count("```") // 2 == 7


@pytest.mark.parametrize(("name", "code"), BLOCK.findall(PAGE))
def test_a_block_is_part_of_its_file(name, code):
    assert code.strip("\n") in (ROOT / name).read_text()

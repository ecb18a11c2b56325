"""Each recipe is a whole program, and prints what its page shows."""

import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

from tests.shown import require_same

DOCS = Path(__file__).parent.parent / "docs"
NAMES = ("recipes", "more_recipes", "step_recipes")
PAGES = [(DOCS / f"{name}.md").read_text() for name in NAMES]
RECIPE = re.compile(
    r"^```python\n# (\S+)\n\n(.*?)^```\n\n"
    r"^```console\n\$ python \1\n(.*?)^```$",
    flags=re.MULTILINE | re.DOTALL,
)
RECIPES = {
    name: (program, shown)
    for page in PAGES
    for name, program, shown in RECIPE.findall(page)
}


def test_each_block_of_the_pages_is_a_recipe_with_its_output():
    assert len(RECIPES) == sum(page.count("```") for page in PAGES) / 4 >= 22


@pytest.mark.long
@pytest.mark.few(2)
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_prints_what_the_page_shows(name, tmp_path):
    program, shown = RECIPES[name]
    (tmp_path / name).write_text(program)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(tmp_path / name), run_name="__main__")
    require_same(shown, printed.getvalue())

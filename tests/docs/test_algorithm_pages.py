"""The pages of the algorithms: titles, links, citations, and their words."""

import importlib
import inspect
import re

import algorithm_pages
import pytest
from algorithm_list import ROOMS, inside, lists, room_page
from bs4 import BeautifulSoup
from citations import cited, papers, source_of, uncovered
from markdown_it.renderer import RendererHTML
from module_text import markdown
from myst_parser.config.main import MdParserConfig
from myst_parser.parsers.mdit import create_md_parser

MODULES = list(algorithm_pages.algorithms())
NO_ADDRESS = {
    "relaxjax.collectives.exact._one_shot": "an exchange older than any paper about it",
    "relaxjax.collectives.exact._bidirectional_ring": "the paper is not in the open",
}


def doc_of(module):
    return inspect.getdoc(importlib.import_module(module)) or ""


@pytest.mark.parametrize("module", MODULES)
def test_titles_have_the_method_and_its_public_names(module):
    title = algorithm_pages.title_of(module)
    method, _, names = title.partition(": ")
    assert doc_of(module).startswith(f"{method}: ")
    called = re.findall(r"`(\w+)`", names)
    assert called
    for name in called:
        function = vars(importlib.import_module(module))[name]
        assert function.__module__ == module


def test_titles_are_those_of_the_papers():
    titles = {m.rpartition("._")[2]: algorithm_pages.title_of(m) for m in MODULES}
    assert titles["drive"] == "DRIVE: `drive`, `rotated_sign`"
    assert titles["power_sgd"] == "PowerSGD: `power_sgd`"
    assert titles["ring"] == "Ring all-reduce: `ring_all_reduce`"
    assert len(set(titles.values())) == len(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_every_algorithm_has_a_source_and_its_address(module):
    source = source_of(doc_of(module))
    assert source, f"{module} states no source"
    assert uncovered(source) == [], f"docs/papers.toml lacks a work that {module} cites"
    addresses = [c.address for c in cited(source) if c.address]
    assert bool(addresses) == (module not in NO_ADDRESS)


def test_papers_are_cited_and_well_formed():
    texts = [source_of(doc_of(module)) for module in MODULES]
    used = {c.words for text in texts for c in cited(text)}
    assert used == set(papers())
    for words, work in papers().items():
        assert set(work) <= {"title", "address"}, words
        assert work["title"]
        assert re.match(r"https://\S+$", work.get("address", "https://none")), words


def test_a_longer_citation_wins():
    (found,) = cited("see DoubleSqueeze (Tang et al. 2019).")
    assert found.words == "DoubleSqueeze (Tang et al. 2019)"
    assert uncovered("Nobody et al. 1999, Stich 2019") == ["1999"]


def words(text):
    return text.replace("`", "").split()


@pytest.mark.parametrize("module", MODULES)
def test_a_page_says_what_the_docstring_says(module):
    """Nothing is lost or read as Markdown: bars, stars, underscores, brackets."""
    settings = MdParserConfig(enable_extensions={"dollarmath", "fieldlist"})
    parser = create_md_parser(settings, RendererHTML)
    html = parser.render(markdown(doc_of(module), {}))
    shown = BeautifulSoup(html, "html.parser").get_text()
    assert words(shown) == words(doc_of(module).partition("\n")[2])


@pytest.mark.long
def test_a_page_links_to_api_code_and_paper(tmp_path):
    module = "relaxjax.compression._drive"
    page = algorithm_pages.page(module, ["drive", "rotated_sign"], tmp_path)
    assert page.startswith("# DRIVE: `drive`, `rotated_sign`\n\nOne bit per element")
    assert "{py:obj}`relaxjax.compression.drive`" in page
    assert 'href="../_modules/relaxjax/compression/_drive.html"' in page
    assert "(https://arxiv.org/abs/2105.08339)" in page
    assert "- `all_reduce+rotated_sign`" in page
    assert "| `rotated_sign` | B(0.5) | `two_shot` |" in page
    assert "](drive.png)" in page
    assert (tmp_path / "drive.png").read_bytes().startswith(b"\x89PNG")


def test_modules_link_to_each_others_pages():
    doc = "A: b.\n\nIt is `relaxjax.gradients.late._delay` with [x] and `y`."
    text = markdown(doc, {"relaxjax.gradients.late._delay": "delay.md"})
    assert (
        text
        == r"It is [`relaxjax.gradients.late._delay`](delay.md) with \[x\] and `y`."
    )


def test_the_list_has_every_page_once():
    listed = re.findall(r"^algorithms/in_(\w+)$", "\n".join(lists()), re.MULTILINE)
    assert listed == list(ROOMS)
    pages = [page for room in ROOMS for page in inside(room)]
    assert sorted(pages) == sorted(map(algorithm_pages.stem_of, MODULES))
    assert room_page("ps") == (
        "# Parameter servers\n\n```{toctree}\n:maxdepth: 2\n\nparameter_server\n```\n"
    )


def test_a_page_begins_with_its_line_and_says_when():
    text = "\n".join(algorithm_pages.advice("power_sgd"))
    assert text.startswith("```python\ntx = optax.chain(relaxjax.power_sgd(")
    assert "\n- **When.** Links between hosts are slow" in text
    assert "\n- **Not when.** The model has many small matrices" in text
    assert "- **More.** [](../gradients.md#powersgd)" in text
    long = algorithm_pages.advice("gradient_tracking")
    assert long[1:3] == [
        "tx = optax.chain(",
        '    relaxjax.gradient_tracking("data", relaxjax.topology.ring(8)),',
    ]
    assert long[5] == ")"

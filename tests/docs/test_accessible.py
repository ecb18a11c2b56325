"""Pages by keyboard and screen reader: what axe-core asks, and the theme leaves out."""

from bs4 import BeautifulSoup

from tests.docs.building import build

PAGE = """# A page

```sh
ls
```

| | seconds |
|---|---|
| a row | 3 |
"""


def test_what_scrolls_is_focused_and_no_heading_is_empty(tmp_path):
    index = "# All\n\n```{toctree}\n:caption: Begin\n\npage\n```\n"
    pages = {"index.md": index, "page.md": PAGE}
    out = build(tmp_path, pages, "myst_parser", "accessible", html_theme="furo")
    soup = BeautifulSoup((out / "page.html").read_text(), "html.parser")
    scrolling = soup.select("article pre, article .table-wrapper")
    assert len(scrolling) == 2
    assert all(x["tabindex"] == "0" for x in scrolling)
    assert all(x.get_text(strip=True) for x in soup.select("article th"))
    (heading,) = soup.select(".sidebar-tree [role=heading]")
    assert heading["aria-level"] == "2"

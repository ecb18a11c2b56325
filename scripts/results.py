"""Tables and pictures of pages, made from docs/results and the like.

python -m scripts.results

A page has a table between two comments, `<!-- results: NAME -->` and `<!-- end -->`.
This writes what stands between them, and the pictures: figures are written once. A test
says when one is stale.
"""

import re

from scripts import pictures
from scripts.tables import TABLES
from scripts.tables.rows import DOCS

BLOCK = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end -->)", re.S)


def filled(text: str) -> str:
    """A page with its tables."""
    return BLOCK.sub(lambda m: "\n".join([m[1].rstrip(), *TABLES[m[2]](), m[3]]), text)


def main() -> None:
    """Writes all of them."""
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        if (now := filled(text)) != text:
            page.write_text(now)
            print(f"{page.name} is written anew")
    for name in pictures.draw():
        print(f"{name} is drawn anew")


if __name__ == "__main__":
    main()

"""Writes the `.pyi` of each package whose door is lazy, for type checkers.

python3 scripts/stubs.py            writes them
python3 scripts/stubs.py --check    exits with 1 where one is not what would be written
"""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def doors() -> list[Path]:
    """`__init__` files that call `door`."""
    every = sorted((ROOT / "relaxjax").rglob("__init__.py"))
    return [path for path in every if " = door(" in path.read_text()]


def tables(path: Path) -> list[dict[str, str]]:
    """Names by module: the public ones, and those for other rooms."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "door":
            words = {word.arg: ast.literal_eval(word.value) for word in node.keywords}
            names = ast.literal_eval(node.args[1])
            for room in words.get("rooms", "").split():
                inside, *_ = tables(path.parent / room / "__init__.py")
                names |= {f"{room}.{home}": several for home, several in inside.items()}
            return [names, words.get("shared", {})]
    raise ValueError(f"{path} has no door")


def stub(path: Path) -> str:
    """The text of the `.pyi` beside a door."""
    package = ".".join(path.parent.relative_to(ROOT).parts)
    lines = ["# Written by scripts/stubs.py from the table in __init__.py.", ""]
    for table in tables(path):
        for home, names in table.items():
            inside = f"{package}.{home}" if home else package
            source = home if home.startswith("relaxjax.") else inside
            lines += [
                f"from {source} import {name} as {name}" for name in names.split()
            ]
    public = sorted(" ".join(tables(path)[0].values()).split())
    if package == "relaxjax":
        lines += ["", "__version__: str"]
    lines += ["", f"__all__ = {public}", ""]
    command = ["ruff", "format", "--stdin-filename", "x.pyi", "-"]
    sort = ["ruff", "check", "--select", "I,RUF022", "--fix", "-q", "--stdin-filename"]
    text = "\n".join(lines)
    for arguments in ([*sort, "x.pyi", "-"], command):
        ruff = [sys.executable, "-m", *arguments]
        text = subprocess.run(
            ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT
        ).stdout
    return text


def main() -> int:
    """Number of stubs that were not as they should be."""
    wrong = 0
    for path in doors():
        target, text = path.with_suffix(".pyi"), stub(path)
        if not target.exists() or target.read_text() != text:
            wrong += 1
            print(target.relative_to(ROOT))
            if "--check" not in sys.argv:
                target.write_text(text)
    return wrong


if __name__ == "__main__":
    count = main()
    sys.exit(bool(count and "--check" in sys.argv))

"""Runs the cells of a notebook and writes what they show into it, without Jupyter.

python -m scripts.notebook examples/notebooks/first_relaxation.ipynb
"""

import ast
import base64
import contextlib
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Cell = dict[str, Any]


def load(path: Path) -> dict[str, Any]:
    """A notebook."""
    return json.loads(path.read_text())


def code(notebook: dict[str, Any]) -> Iterator[Cell]:
    """Its cells of code."""
    return (cell for cell in notebook["cells"] if cell["cell_type"] == "code")


def run(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """What a cell prints, and the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), names)
        value = None
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    return printed.getvalue(), value


def outputs(printed: str, value: Any, count: int) -> list[Cell]:
    """The outputs of a cell as a notebook keeps them."""
    found: list[Cell] = []
    if printed:
        lines = printed.splitlines(keepends=True)
        found.append({"output_type": "stream", "name": "stdout", "text": lines})
    if value is not None:
        found.append(
            {
                "output_type": "execute_result",
                "execution_count": count,
                "metadata": {},
                "data": shown(value),
            }
        )
    return found


def shown(value: Any) -> dict[str, str]:
    """A picture, a table or words."""
    if hasattr(value, "savefig"):
        picture = io.BytesIO()
        value.savefig(picture, dpi=100, metadata={"Software": None})
        data = base64.b64encode(picture.getvalue()).decode()
        return {"image/png": data, "text/plain": "the plot"}
    if hasattr(value, "_repr_html_"):
        return {"text/html": value._repr_html_(), "text/plain": type(value).__name__}
    return {"text/plain": repr(value)}


def main(path: Path) -> None:
    """Writes the notebook with its outputs."""
    import matplotlib

    matplotlib.use("agg")
    notebook, names = load(path), {"__name__": "__main__"}
    for count, cell in enumerate(code(notebook), 1):
        cell["execution_count"] = count
        cell["outputs"] = outputs(*run("".join(cell["source"]), names), count)
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

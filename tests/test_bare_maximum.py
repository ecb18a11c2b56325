"""No source takes a maximum of floats that would drop a NaN on CPU.

`relaxjax._core._extremes` has those that do not. Maxima of integers and of NumPy's
arrays are sound: the former are listed here, the latter are of arrays that NumPy made.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMES = {"max", "min", "amax", "amin", "ptp", "nanmax", "nanmin"}
COLLECTIVES = {"pmax", "pmin", "reduce_max", "reduce_min"}
OF_INTEGERS = {
    "relaxjax/_core/_extremes.py": 7,
    "relaxjax/_core/traced/_silence.py": 1,
    "relaxjax/local_updates/periodic/_hierarchical_local_sgd.py": 1,
}
PLACES = ("relaxjax", "benchmarks", "examples", "docs")


def bare(source: str) -> list[str]:
    """The reductions in a program, as they are written."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Attribute):
            continue
        module = ast.unparse(node.value)
        jnp = module in ("jnp", "jax.numpy") and node.attr in NAMES
        lax = module in ("lax", "jax.lax") and node.attr in COLLECTIVES
        chained = node.attr in ("max", "min") and module.startswith(("jnp.", "lax."))
        chained &= not module.startswith(("jnp.finfo", "jnp.iinfo"))
        if jnp or lax or chained:
            found.append(f"{module}.{node.attr}")
    return found


def sources() -> dict[str, str]:
    """Programs of the repository, and those in its pages."""
    found = {}
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*.py")):
            found[path.relative_to(ROOT).as_posix()] = path.read_text()
    return found


def test_the_largest_and_the_least_are_taken_where_a_nan_stays():
    counts = {name: len(bare(text)) for name, text in sources().items()}
    assert {name: n for name, n in counts.items() if n} == OF_INTEGERS


def test_the_pages_show_no_bare_maximum():
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for block in re.findall(r"```python\n(.*?)```", path.read_text(), re.DOTALL):
            assert not re.search(r"jnp\.(a?max|a?min|ptp)\(", block), path.name


@pytest.mark.parametrize(
    "line",
    [
        "jnp.max(x)",
        "jax.numpy.amin(x, axis=0)",
        "lax.pmax(x, 'data')",
        "jnp.abs(x).max()",
        "jnp.ptp(x)",
        "jax.tree.map(jnp.max, x)",
    ],
)
def test_what_is_bare(line):
    assert len(bare(line)) == 1


@pytest.mark.parametrize(
    "line", ["np.max(x)", "jnp.maximum(x, 0)", "jnp.finfo(x.dtype).max", "max(1, 2)"]
)
def test_what_is_not(line):
    assert bare(line) == []

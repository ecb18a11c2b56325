"""A page for each algorithm, made from its module, its rows and what was measured.

The title has the method's name, as the module's first line begins, and the names by
which it is called. Links lead to the API, the source and the papers; the tables of
names, laws, merge rules, bytes and evidence are those that the package itself uses.
"""

import ast
import functools
import importlib
import inspect
import pkgutil
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import matplotlib.pyplot as plt
from algorithm_evidence import planned, ranked
from citations import cited, source_of
from coverage_check import doors
from module_text import markdown
from sphinx.application import Sphinx

import relaxjax
from relaxjax._names import RELAXATIONS
from relaxjax.compression import Compressor
from relaxjax.compression._rows import COMPRESSORS, FEEDBACKS
from scripts.tables.compressors import SIZE, law
from scripts.tables.merge_rules import states

WHEN = Path(__file__).parents[1] / "when.toml"
ELSEWHERE = {"muloco": "_diloco", "combine_then_adapt": "_gossip"}
NAMELESS = (
    "participation",
    "skip_nonfinite",
    "hierarchical_local_sgd",
    "delayed_nesterov",
    "dc_asgd",
    "factored_product",
)
"""Algorithms that `relaxjax train` has no name for."""


def module_of(name: str) -> ModuleType:
    """The module of a relaxation, in whichever room it is."""
    stem = ELSEWHERE.get(name, f"_{name}")
    package = Path(relaxjax.__file__).parent
    (path,) = package.glob(f"*/**/{stem}.py")
    parts = path.relative_to(package.parent).with_suffix("").parts
    return importlib.import_module(".".join(parts))


def algorithms() -> dict[str, list[str]]:
    """Modules of algorithms, and the names that they have in `relaxjax train`."""
    modules: dict[str, list[str]] = {}
    for name in RELAXATIONS:
        modules.setdefault(module_of(name).__name__, []).append(name)
    for name in NAMELESS:
        modules.setdefault(module_of(name).__name__, [])
    for name, make in COMPRESSORS.items():
        modules.setdefault(make().compress.__module__, []).append(name)
    for name, wrap in FEEDBACKS.items():
        modules.setdefault(wrap.__module__, []).append(name)
    for room in ("relaxjax.collectives", "relaxjax.activations"):
        package = importlib.import_module(room)
        for info in pkgutil.walk_packages(package.__path__, f"{room}."):
            if source_of(inspect.getdoc(importlib.import_module(info.name)) or ""):
                modules[info.name] = []
    return modules


def stem_of(module: str) -> str:
    """The name of a module's page, without its folder and ending."""
    return module.rpartition(".")[2][1:]


@functools.cache
def public_names() -> dict[str, list[str]]:
    """The documented names of each module, functions first, in its own order."""
    names: dict[str, dict[str, tuple[bool, int]]] = {}
    for door in doors():
        for name in door.__all__:
            value = getattr(door, name)
            twice = door is not relaxjax and name in relaxjax.__all__
            if twice or not callable(value):
                continue
            module = getattr(value, "__module__", "")
            if name in vars(sys.modules.get(module, relaxjax)):
                order = list(vars(sys.modules[module])).index(name)
                place = inspect.isclass(value), order
                names.setdefault(module, {})[f"{door.__name__}.{name}"] = place
    return {home: sorted(given, key=given.__getitem__) for home, given in names.items()}


def title_of(module: str) -> str:
    """The method's name, and what it is called in Python."""
    doc = inspect.getdoc(importlib.import_module(module)) or ""
    method, colon, _ = doc.partition("\n")[0].partition(": ")
    assert colon, f"{module} should begin with 'Name: what it does.'"
    called = [name.rpartition(".")[2] for name in public_names()[module]]
    called = [n for n in called if n.islower() and not n.endswith("_wire_bytes")]
    return f"{method}: " + ", ".join(f"`{name}`" for name in called)


def page(module: str, names: list[str], folder: Path) -> str:
    """The Markdown of a module's page."""
    doc = inspect.getdoc(importlib.import_module(module)) or ""
    does = doc.partition("\n")[0].partition(": ")[2]
    pages = {other: f"{stem_of(other)}.md" for other in algorithms()}
    lines = [f"# {title_of(module)}", "", does[0].upper() + does[1:], ""]
    lines += [*advice(stem_of(module)), *links(module, doc), ""]
    lines += ["## Rule", "", markdown(doc, pages), ""]
    lines += commands(names) + laws(names)
    kinds = [kind for kind in states() if kind in vars(importlib.import_module(module))]
    lines += merges(kinds)
    evidence = ranked(list(planned(names)), folder / stem_of(module))
    return "\n".join(lines + (["## Evidence", "", *evidence] if evidence else []))


@functools.cache
def _when() -> dict[str, dict[str, str]]:
    return tomllib.loads(WHEN.read_text())


def advice(stem: str) -> list[str]:
    """The line that makes it, when to take it and when not."""
    said = _when()[stem]
    line = f"tx = {said['tx']}" if "tx" in said else f"y = {said['call']}"
    return [
        "```python",
        *_wrapped(line),
        "```",
        "",
        f"- **When.** {said['take']}",
        f"- **Not when.** {said['not']}",
        f"- **More.** [](../{said['page']})",
    ]


def _wrapped(line: str) -> list[str]:
    """A line of code; the parts of a chain that is too long stand below each other."""
    start = "tx = optax.chain("
    if len(line) <= 84 or not line.startswith(start):
        return [line]
    made = line.removeprefix("tx = ")
    call = ast.parse(made, mode="eval").body
    assert isinstance(call, ast.Call)
    inside = [f"    {ast.get_source_segment(made, part)}," for part in call.args]
    return [start, *inside, ")"]


def links(module: str, doc: str) -> list[str]:
    """A list of where else the algorithm is found: API, code, and papers."""
    path = module.replace(".", "/")
    api = ", ".join(f"{{py:obj}}`{name}`" for name in public_names()[module])
    code = f'<a href="../_modules/{path}.html"><code>{path}.py</code></a>'
    works = {c.title: c.address for c in cited(source_of(doc))}
    papers = [f"[{t}]({a})" if a else t for t, a in works.items()]
    lines = [f"- API: {api}", f"- Code: {code}"]
    return [*lines, *(f"- Reference: {paper}" for paper in papers)]


def commands(names: list[str]) -> list[str]:
    """What the names are that `relaxjax train` takes, if there are any."""
    if not names:
        return []
    lines = ["On the command line (`relaxjax train --relaxation`):", ""]
    for name in names:
        if name in RELAXATIONS:
            lines.append(f"- `{name}`: {RELAXATIONS[name].summary}")
        elif name in COMPRESSORS:
            lines.append(f"- `all_reduce+{name}`")
        else:
            lines.append(f"- `all_reduce+COMPRESSOR+{name}`")
    return [*lines, ""]


def laws(names: list[str]) -> list[str]:
    """The table of the laws of compressors, if there are any."""
    compressors = {n: COMPRESSORS[n]() for n in names if n in COMPRESSORS}
    if not compressors:
        return []
    lines = ["| name | law (4096 elements) | default algorithm |", "|---|---|---|"]
    lines += [_law(n, c) for n, c in compressors.items()]
    return [*lines, "", "[What the letters mean](../compression.md).", ""]


def _law(name: str, compressor: Compressor) -> str:
    assert SIZE == 4096
    return f"| `{name}` | {law(compressor)} | `{compressor.algorithm}` |"


def merges(kinds: list[str]) -> list[str]:
    """The table of how states merge when the number of workers changes."""
    if not kinds:
        return []
    lines = ["| state | field | when workers leave or join |", "|---|---|---|"]
    for kind in kinds:
        lines += [f"| `{kind}` | `{f}` | {m.name} |" for f, m in states()[kind].items()]
    return [*lines, "", "[What the words mean](../checkpoints.md).", ""]


def write(app: Sphinx) -> None:
    """Writes all pages into the folder that `algorithms.md` lists."""
    plt.switch_backend("agg")
    folder = Path(app.srcdir) / "algorithms"
    folder.mkdir(exist_ok=True)
    for module, names in algorithms().items():
        path = folder / f"{stem_of(module)}.md"
        path.write_text(page(module, names, folder) + "\n")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}

"""A page for each algorithm, made from its module, its rows and what was measured.

The module's own docstring has the source, the equations and the cost; the tables of
names, laws, merge rules, bytes and evidence are those that the package itself uses.
"""

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import matplotlib.pyplot as plt
from compressor_table import SIZE, law
from mark_table import states
from sphinx.application import Sphinx

import relaxjax
from relaxjax._names import RELAXATIONS
from relaxjax.compression import Compressor
from relaxjax.compression._rows import COMPRESSORS, FEEDBACKS
from relaxjax.plan import Model, Network
from relaxjax.plan._candidate import Candidate
from relaxjax.plan._candidates import candidates
from relaxjax.plan._predict import predict
from relaxjax.plan._quality import bare, measurements

WORKERS = 8
MODEL = Model.of_size(1_000_000, compute=1.0)
ELSEWHERE = {"muloco": "_diloco", "combine_then_adapt": "_gossip"}
NAMELESS = ("participation", "skip_nonfinite", "hierarchical_local_sgd", "dc_asgd")
"""Algorithms that `relaxjax train` has no name for."""
CAPTION = (
    "Bytes of a step relative to a plain all-reduce, and how much worse the held-out "
    "metric ends (`python -m benchmarks evidence`); other methods are gray, numbers "
    "refer to the table."
)


def module_of(name: str) -> ModuleType:
    """The module of a relaxation, in whichever room it is."""
    stem = ELSEWHERE.get(name, f"_{name}")
    (path,) = Path(relaxjax.__file__).parent.glob(f"*/{stem}.py")
    return importlib.import_module(f"relaxjax.{path.parent.name}.{stem}")


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
    package = importlib.import_module("relaxjax.collectives")
    for info in pkgutil.iter_modules(package.__path__, "relaxjax.collectives."):
        if "Source:" in (inspect.getdoc(importlib.import_module(info.name)) or ""):
            modules[info.name] = []
    return modules


def planned(names: list[str]) -> Iterator[Candidate]:
    """The candidates of a plan that have one of the names in theirs."""
    seen: set[str] = set()
    for c in candidates(Network(workers=WORKERS)):
        parts = re.split(r"[+@]", c.relaxation)
        if set(parts) & set(names) and bare(c.label) not in seen:
            seen.add(bare(c.label))
            yield c


def share(c: Candidate) -> float:
    """A candidate's bytes, relative to a plain all-reduce."""
    sent = predict(c, MODEL, Network(workers=WORKERS), 2**23).nbytes
    return sent / (2 * (WORKERS - 1) / WORKERS * 4 * MODEL.size)


def page(module: str, names: list[str], folder: Path) -> str:
    """The Markdown of a module's page."""
    text = inspect.getdoc(importlib.import_module(module)) or ""
    title, _, rest = text.partition("\n")
    lines = [f"# {title.rstrip('.')}", "", "```text", rest.strip(), "```", ""]
    lines += [f"Module `{module}`.", ""]
    if called := [n for n in names if n in RELAXATIONS]:
        lines += [f"- `{n}`: {RELAXATIONS[n].summary}" for n in called]
        lines += ["", "`relaxjax train --relaxation` takes these names.", ""]
    lines += laws(names)
    kinds = [kind for kind in states() if kind in vars(importlib.import_module(module))]
    lines += merges(kinds)
    rows = list(planned(names))
    return "\n".join(lines + ranked(rows, folder / module.rpartition(".")[2][1:]))


def laws(names: list[str]) -> list[str]:
    """The table of the laws of compressors, if there are any."""
    compressors = {n: COMPRESSORS[n]() for n in names if n in COMPRESSORS}
    if not compressors:
        return []
    lines = ["| name | law (4096 elements) | default algorithm |", "|---|---|---|"]
    return [*lines, *(_law(n, c) for n, c in compressors.items()), ""]


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


def ranked(rows: list[Candidate], picture: Path) -> list[str]:
    """The table and plot of what a plan knows: use, bytes and quality."""
    if not rows:
        return []
    known = measurements()["rows"]
    lines = [
        "| | in a plan | what it does | bytes / plain | digits | chars |",
        "|---|---|---|---|---|---|",
    ]
    for number, c in enumerate(rows, 1):
        tasks = known.get(bare(c.label), {})
        worse = [_percent(tasks.get(task)) for task in ("digits", "chars")]
        cells = [str(number), f"`{bare(c.label)}`", c.why, f"{share(c):.3g}", *worse]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Digits, chars: how much worse the held-out metric ends than with a "]
    lines[-1] += "plain all-reduce, relative; empty if it was not run. "
    lines[-1] += "[When it pays](../planning.md)."
    numbers = {bare(c.label): number for number, c in enumerate(rows, 1)}
    if numbers.keys() & known.keys():
        draw(numbers, picture.with_suffix(".png"))
        lines += ["", f"![{CAPTION}]({picture.stem}.png)", "", CAPTION]
    return lines


def _percent(result: dict[str, float] | None) -> str:
    if result is None:
        return ""
    percent = 100 * result["worse"]
    if abs(percent) < 0.005:
        return "0 %"
    return "diverged" if percent > 1e5 else f"{percent:+.2g} %"


def draw(numbers: dict[str, int], path: Path) -> None:
    """Draws all that was measured in gray, these in color."""
    known = measurements()["rows"]
    shares = {bare(c.label): share(c) for c in candidates(Network(workers=WORKERS))}
    figure, sides = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for axes, task in zip(sides, ("digits", "chars"), strict=True):
        both = {k: v[task] for k, v in known.items() if task in v and k in shares}
        for label, result in both.items():
            chosen = label in numbers
            y = min(100 * result["worse"], 100.0)
            axes.plot(
                shares[label],
                y,
                marker="o" if chosen else ".",
                color="C3" if chosen else "0.7",
                zorder=2 + chosen,
            )
            if chosen:
                at = {"xytext": (3, 3), "textcoords": "offset points"}
                axes.annotate(str(numbers[label]), (shares[label], y), **at)
        axes.set(xscale="log", xlabel="bytes / plain", title=task)
        axes.set_yscale("symlog", linthresh=1)
    sides[0].set_ylabel("worse, %")
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def write(app: Sphinx) -> None:
    """Writes all pages into the folder that `algorithms.md` lists."""
    plt.switch_backend("agg")
    folder = Path(app.srcdir) / "algorithms"
    folder.mkdir(exist_ok=True)
    for module, names in algorithms().items():
        stem = module.rpartition(".")[2][1:]
        (folder / f"{stem}.md").write_text(page(module, names, folder) + "\n")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True}

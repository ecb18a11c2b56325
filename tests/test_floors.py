"""The house: rooms on floors, imports that go down only, doors, and how large it is."""

import ast
import functools
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import relaxjax
from scripts import stubs

ROOT = Path(relaxjax.__file__).parent

# From the ground up; a room imports lower floors and never its neighbors. Inside one
# package modules may import each other, without a cycle.
FLOORS = [
    {"_core", "tasks"},
    {"compression", "topology", "workers", "faults"},
    {"collectives", "programs", "checkpoint", "hosts"},
    {"gradients", "schedule"},
    {"local_updates", "decentralized", "ps", "fsdp"},
    {"_names"},
    {"plan", "golden"},
    {"check"},
    {"compare", "islands"},
    {"cli"},
]
DOORS = {"__init__", "__main__"}
"""They see everything."""
PRIVATE = {("_names", "_rows"): "the table of names joins those of the rooms"}
"""Modules of other packages that may be imported, and why."""


@functools.cache
def sources() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in sorted(ROOT.rglob("*.py"))
        if "skeletons" not in path.parts  # users' files, which come by the front door
    }


@functools.cache
def rooms_names() -> dict[str, str]:
    """The module of each name that a lazy door has, as in `gradients.all_reduce`."""
    homes = {}
    for path in stubs.doors():
        room = ".".join(path.parent.relative_to(ROOT).parts)
        for table in stubs.tables(path):
            for home, names in table.items():
                near = f"{room}.{home}".strip(".") if home else ""
                module = home.removeprefix("relaxjax.") if "relaxjax" in home else near
                homes |= {f"{room}.{name}".strip("."): module for name in names.split()}
    return homes


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Modules of relaxjax that a file imports at run time, without the prefix."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the floor"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    modules = set(sources()) | {m.removesuffix(".__init__") for m in sources()}
    result = set()
    for name in found:
        if name.split(".")[0] != "relaxjax":
            continue
        target = name.removeprefix("relaxjax").lstrip(".")
        target = rooms_names().get(target) or target
        parts = target.split(".")
        while parts and ".".join(parts) not in modules:
            parts.pop()
        result.add(".".join(parts))
    return frozenset(result)


def graph() -> dict[str, frozenset[str]]:
    return {
        module.removesuffix(".__init__"): imports(path)
        for module, path in sources().items()
        if module != "__init__"
    }


def floor_of(module: str) -> int:
    top = module.split(".")[0]
    for height, floor in enumerate(FLOORS):
        if top in floor:
            return height
    pytest.fail(f"relaxjax/{top} stands on no floor: add it to FLOORS")


def violations() -> list[str]:
    wrong = []
    for module, path in sources().items():
        if module in DOORS:
            continue
        for target in imports(path):
            if not target:  # `from relaxjax import x`: through the door, upwards
                wrong.append(f"{module} imports the package's door")
            elif target.split(".")[0] == module.split(".")[0]:
                continue
            elif floor_of(target) >= floor_of(module):
                wrong.append(f"{module} imports {target}")
    return wrong


def test_imports_go_down_only():
    assert violations() == []


def test_there_are_at_most_ten_floors():
    assert len(FLOORS) <= 10
    tops = {module.split(".")[0] for module in sources()} - DOORS
    assert set().union(*FLOORS) == tops


def longest_chain() -> list[str]:
    """The longest way down; a cycle on it is a failure."""
    edges = graph()
    best: dict[str, list[str]] = {}

    def visit(module: str, trail: tuple[str, ...]) -> list[str]:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in best:
            below = [visit(t, (*trail, module)) for t in edges.get(module, ()) if t]
            best[module] = [module, *max(below, key=len, default=[])]
        return best[module]

    return max((visit(module, ()) for module in edges), key=len)


def test_no_cycles_and_no_long_way_down():
    chain = longest_chain()
    assert len(chain) <= 20, " -> ".join(chain)


def test_other_rooms_private_modules_stay_theirs():
    wrong = []
    for module, path in sources().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or module == "__init__":
                continue
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            for parts in (name.split(".") for name in full):
                room, top = parts[1:2], module.split(".")[0]
                if parts[0] != "relaxjax" or room in (["_core"], [top]):
                    continue
                private = [p for p in parts[2:] if p.startswith("_")]
                if any((top, p) not in PRIVATE for p in private):
                    wrong.append(f"{module} imports {'.'.join(parts)}")
    assert wrong == []


def test_one_door_per_package():
    for module, path in sources().items():
        parts = module.split(".")
        if parts[-1] == "__init__":
            names = {
                node.id
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            assert "__all__" in names, f"{path} has no __all__"
        else:
            assert parts[-1].startswith("_"), f"{path} should be private"


@pytest.mark.long
def test_what_type_checkers_read_is_what_doors_say():
    assert stubs.doors()
    for path in stubs.doors():
        assert path.with_suffix(".pyi").read_text() == stubs.stub(path), (
            f"run python3 scripts/stubs.py: the .pyi beside {path} is stale"
        )


def test_public_names_stay():
    before = json.loads((Path(__file__).parent / "public_names.json").read_text())
    for package, names in before.items():
        module = importlib.import_module(package)
        assert sorted(module.__all__) == names, package
        assert set(names) <= set(dir(module))
        for name in names:
            getattr(module, name)


def test_nothing_lies_flat_at_the_top():
    flat = {path.stem for path in ROOT.glob("*.py")}
    assert flat == {"__init__", "__main__", "_names"}


def test_the_package_stays_small():
    """270 files and 32 000 lines when the rooms were drawn; what came later says so."""
    files = list(ROOT.rglob("*.py"))
    lines = sum(len(path.read_text().splitlines()) for path in files)
    added = {
        "what stands where, and steps that go wrong": (5, 760),
        "explain": (2, 230),
        "Ctrl-C at any moment": (1, 250),
        "compare, and tasks from files": (30, 3900),
        "transfers shorter than a latency, and ties": (0, 150),
        "plots that can be read": (2, 280),
        "tables at any width": (1, 110),
        "models of other libraries, chains that do not compose": (0, 250),
        "mistakes in task files, and train on them": (2, 310),
        "what makes two runs the same": (1, 150),
        "files of studies are looked at": (1, 200),
        "decoupled DiLoCo, merges by length and direction": (5, 640),
        "weights that lie sharded": (12, 1680),
        "factors by turns": (3, 570),
        "reducers of unreduced gradients": (1, 230),
        "fields at periods of their own": (1, 350),
        "numbers that make no sense at the front door": (1, 90),
        "a share of each model in every step": (1, 290),
        "islands": (22, 3000),
        "outer gradients one by one": (2, 380),
        "outer gradients turned by the momentum, workers by turns": (1, 280),
        "factors and rows of a momentum": (3, 760),
        "frequencies of a momentum": (1, 290),
        "islands: steps run again, all in one program, a page": (6, 620),
        "islands in a bucket, contributions in codes": (2, 460),
        "islands as actors of Ray, calls by the actor": (2, 280),
        "seeds of a study in one program, study.json": (3, 340),
        "rounds of messages in a trace": (1, 90),
        "Chakra traces": (3, 310),
        "plans of sharded weights": (1, 240),
        "rows by a common sketch": (2, 340),
        "slices on axes of other sizes": (1, 240),
        "feedback of what two selections share": (1, 100),
        "a topology by its links": (3, 190),
        "factors of a dense layer": (1, 180),
        "SDP4Bit, rotations": (3, 260),
        "spare processes of islands, low rank of slices": (2, 280),
        "islands: answers that are kept, several processes": (2, 420),
        "long files in two or three": (9, 260),
        "steps in which nothing is due, bases written out": (3, 330),
        "large pages, models averaged by any reducer": (1, 160),
        "islands: bounds on contributions, a door for foreign files": (5, 960),
    }
    assert len(files) <= 270 + sum(files for files, _ in added.values())
    assert lines <= 32_000 + sum(lines for _, lines in added.values())


@pytest.mark.long
def test_all_reduce_runs_few_files():
    code = (
        "import sys, relaxjax; relaxjax.all_reduce; "
        "print(sum(m.split('.')[0] == 'relaxjax' for m in sys.modules))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) <= 45

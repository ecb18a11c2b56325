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
    {"_core"},
    {"compression", "merges", "periods", "topology", "workers", "faults", "tasks"},
    {"collectives", "controllers", "programs", "checkpoint", "hosts"},
    {"gradients", "schedule", "activations"},
    {"local_updates", "decentralized", "ps", "fsdp"},
    {"_names"},
    {"plan", "golden"},
    {"check"},
    {"compare", "islands"},
    {"cli"},
]
INNER_FLOORS = {
    "_core": [{"foreign"}, {""}, {"layouts"}, {"traced"}],
    "compression": [{""}, {"formats", "feedback"}],
    "collectives": [{"wire"}, {"exact"}, {"coded"}, {""}],
    "local_updates": [{"common"}, {"periodic", "parts"}, {"late"}, {""}],
    "cli": [{"common", "printed"}, {"options"}, {"training"}, {""}],
    "gradients": [{"mean", "late"}, {"low_rank", "adaptive"}, {"momenta"}, {""}],
    "plan": [{"forms"}, {""}, {"inside", "running"}],
    "schedule": [{"graphs"}, {"orders", "replayed"}, {"simulator"}, {""}],
    "compare": [{"kept"}, {"page"}, {"study"}, {""}],
    "islands": [{"carriers"}, {"common"}, {"one"}, {"started", "replayed"}, {""}],
}
"""Inner rooms of a room, likewise; "" is what lies outside of them."""
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


def inner_room_of(module: str) -> str:
    """The inner room of a module; "" if it lies outside of them."""
    room, *inside = module.split(".")
    return inside[0] if inside and (ROOT / room / inside[0]).is_dir() else ""


def is_upward(module: str, target: str) -> bool:
    """Whether an import inside one room goes up, or to a neighbor."""
    floors = INNER_FLOORS[module.split(".")[0]]
    here, there = inner_room_of(module), inner_room_of(target)
    (height,) = (i for i, floor in enumerate(floors) if here in floor)
    return here != there and any(there in floor for floor in floors[height:])


def violations() -> list[str]:
    wrong = []
    for module, path in sources().items():
        if module in DOORS:
            continue
        for target in imports(path):
            if not target:  # `from relaxjax import x`: through the door, upwards
                wrong.append(f"{module} imports the package's door")
            elif (room := target.split(".")[0]) == module.split(".")[0]:
                if room in INNER_FLOORS and is_upward(module, target):
                    wrong.append(f"{module} imports {target}")
            elif floor_of(target) >= floor_of(module):
                wrong.append(f"{module} imports {target}")
    return wrong


def test_imports_go_down_only():
    assert violations() == []


def test_inner_rooms_stand_on_floors():
    not_rooms = {"__pycache__", "skeletons"}  # users' files, as above
    for room, floors in INNER_FLOORS.items():
        inside = {path.name for path in (ROOT / room).iterdir() if path.is_dir()}
        assert set().union(*floors) - {""} == inside - not_rooms, room


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
    assert len(chain) <= 18, " -> ".join(chain)


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
            tree = ast.parse(path.read_text())
            names = {
                node.id
                for node in ast.walk(tree)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            says_more = len(tree.body) > 1  # than a docstring
            assert says_more == ("__all__" in names), f"{path}: names, but no __all__"
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


@pytest.mark.long
def test_all_reduce_runs_few_files():
    code = (
        "import sys, relaxjax; relaxjax.all_reduce; "
        "found = [m for n, m in sys.modules.items() if n.startswith('relaxjax.')]; "
        "print(sum(not hasattr(m, '__path__') for m in found))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) <= 49  # besides doors

"""Imports go down only: each module may import lower floors, never its siblings."""

import ast
from pathlib import Path

import pytest

import relaxjax

ROOT = Path(relaxjax.__file__).parent

# From the ground up. A name is a module or a package directly under relaxjax/;
# inside one package modules may import each other, without a cycle.
FLOORS = [
    {
        "_core",
        "tasks",
    },
    {
        "compression",
        "faults",
        "topology",
        "workers",
    },
    {
        "checkpoint",
        "collectives",
        "hosts",
        "programs",
    },
    {
        "gradients",
        "schedule",
    },
    {
        "decentralized",
        "local_updates",
        "ps",
    },
    {
        "_names",
        "golden",
    },
    {
        "check",
        "plan",
    },
    {
        "cli",
    },
    {
        "__main__",
    },
]


def sources() -> dict[str, Path]:
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): path
        for path in sorted(ROOT.rglob("*.py"))
        if "skeletons" not in path.parts  # users' files, which come by the front door
    }


def imports(path: Path) -> set[str]:
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
        parts = name.split(".")[1:]
        while parts and ".".join(parts) not in modules:
            parts.pop()
        result.add(".".join(parts))
    return result


def floor_of(module: str) -> int:
    top = module.split(".")[0]
    for height, floor in enumerate(FLOORS):
        if top in floor:
            return height
    pytest.fail(f"relaxjax/{top} stands on no floor: add it to FLOORS")


def violations() -> list[str]:
    wrong = []
    for module, path in sources().items():
        if module == "__init__":  # the door sees everything
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


def test_no_cycles():
    graph = {
        module.removesuffix(".__init__"): imports(path)
        for module, path in sources().items()
        if module != "__init__"
    }
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module in done:
            return
        for target in graph.get(module, ()):
            visit(target, (*trail, module))
        done.add(module)

    for module in graph:
        visit(module, ())


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

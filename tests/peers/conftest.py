"""What the group finds beside others, written down: `pytest tests/peers --found FILE`.

The file has each package with its version, the tests that passed beside it, and what
tests measured. The program that imports PyTorch is no test, and is not searched for
doctests.
"""

import json
import platform
from collections import Counter, defaultdict
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

collect_ignore = ["ddp.py"]
PACKAGES = {
    "test_averagers": "torch",
    "test_chakra": "mlc-chakra",
    "test_codes": "hivemind bitsandbytes torchao",
    "test_ddp": "torch",
    "test_decent_bench": "decent-bench",
    "test_microxcaling": "microxcaling",
    "test_optax": "optax",
    "test_powersgd": "powersgd",
    "test_small_floats": "torchao",
    "test_traces": "HolisticTraceAnalysis",
}
COMMITS = {"microxcaling": "7bc4195", "powersgd": "f07be92"}
PASSED, MEASURED = Counter[str](), defaultdict[str, dict[str, Any]](dict)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--found", type=Path, help="write what was found to this file")
    parser.addoption("--all-peers", action="store_true", help="skip for want of none")


@pytest.fixture
def measured() -> Callable[[str, str, Any], None]:
    """`measured(table, row, values)` keeps figures for the file."""

    def keep(table: str, row: str, values: Any) -> None:
        MEASURED[table][row] = values

    return keep


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """A module that is skipped for want of its package has no test among these."""
    missing = PACKAGES.keys() - {item.path.stem for item in items}
    if config.getoption("--all-peers", False) and missing:
        names = ", ".join(PACKAGES[test] for test in sorted(missing))
        raise pytest.UsageError(f"packages are missing: {names}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        PASSED[Path(report.location[0]).stem] += 1


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = session.config.getoption("--found", None)
    if path is None:
        return
    peers = [
        {"test": test, "packages": dict(map(_versioned, names.split())), "passed": n}
        for test, names in PACKAGES.items()
        if (n := PASSED[test])
    ]
    names = ("relaxjax", "jax", "numpy")
    conditions = {"python": platform.python_version(), **dict(map(_versioned, names))}
    found = {"conditions": conditions, "peers": peers, "measured": MEASURED}
    path.write_text(json.dumps(found, indent=1) + "\n")


def _versioned(name: str) -> tuple[str, str]:
    return name, COMMITS.get(name) or version(name)

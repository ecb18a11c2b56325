"""A module of the tests as a program of several processes."""

import sys
from pathlib import Path
from typing import Any

from relaxjax import hosts

ROOT = Path(__file__).parents[2]


def launched(
    module: str, *arguments: object, devices: int = 1, **how: Any
) -> tuple[hosts.Ended, str]:
    """How two processes of so many devices ended, and all that they said."""
    said: list[str] = []
    ended = hosts.launch(
        [sys.executable, "-m", module, *map(str, arguments)],
        2,
        environment={
            "JAX_PLATFORMS": "cpu",
            "JAX_NUM_CPU_DEVICES": str(devices),
            "NPROC": "8",
            "PYTHONPATH": str(ROOT),
        },
        say=lambda *line: said.append(line[-1]),
        **how,
    )
    return ended, "\n".join(said)


def require_run(module: str, *arguments: object, devices: int = 1) -> None:
    """Two processes that end well."""
    ended, said = launched(module, *arguments, devices=devices)
    assert ended.status == 0, said

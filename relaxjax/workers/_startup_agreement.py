"""Processes compare what they are about to run, before they run it.

A process with another model, another configuration or another version would otherwise
hang the first collective, or silently train something else. Each process describes what
it has in lines of text; all lines are compared with process 0's, and every process
raises the same error.

Cost: two small all-gathers at start-up; nothing with one process.
"""

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils

from relaxjax._core._tree import layout_of
from relaxjax._core.traced._digests import arrays_digest, arrays_of, text_digest
from relaxjax._core.traced._extra_args import ExtraArgs, with_extra_args
from relaxjax.workers._mesh import WorkerMesh

_CONFIGURATION = "the configuration of the transformation (digest of its program)"
_UPDATE = "the update of the transformation (digest of its program)"
UNSEEN = "could not be traced"
_PACKAGES = ("jax", "jaxlib", "numpy", "optax", "relaxjax")


def require_agreement(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    extra_args: Mapping[str, Any] | None = None,
) -> None:
    """Raises on every process if any process differs from process 0."""
    if workers.processes > 1:
        require_equal_processes("init", describe(tx, params, workers, extra_args))


def require_equal_processes(caller: str, mine: Mapping[str, str]) -> None:
    """Raises on every process if one has another table, of one-line names and values.

    The error names all differences between process 0 and the first that differs.
    """
    texts = _gather("\n".join(f"{key}\t{value}" for key, value in mine.items()))
    tables = [dict(line.split("\t", 1) for line in text.splitlines()) for text in texts]
    first = tables[0]
    for process, table in enumerate(tables):
        wrong = [
            f"{key}: process 0 has {first.get(key, 'absent')}, process {process} has "
            f"{table.get(key, 'absent')}"
            for key in first | table
            if first.get(key) != table.get(key)
        ]
        if wrong:
            raise ValueError(
                f"{caller}: processes disagree on " + "; on ".join(wrong) + ". Start "
                "every process with the same script, configuration, data and versions"
            )


def describe(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    extra_args: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """What this process is about to run, as names and values."""
    leaves = layout_of(params).leaves
    return {
        **{f"the version of {name}": text for name, text in versions().items()},
        "the mesh": str(dict(workers.mesh.shape)),
        **{f"leaf {name!r}": spelling for name, spelling in leaves.items()},
        "the tree structure": str(jax.tree.structure(params)),
        **_digests(tx, params, workers, extra_args),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that this process runs, by name."""
    table = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            table[name] = version(name)
        except PackageNotFoundError:
            table[name] = "not installed"
    return table


def _digests(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    extra_args: Mapping[str, Any] | None,
) -> dict[str, str]:
    """Digests of the traced `init` and `update`, hyper-parameters included.

    A program's text leaves out what its arrays hold, such as a topology's weights or a
    table of delays: these have a digest of their own. What needs arguments has one
    beside that of `init`; where it cannot be traced, a line says so.
    """
    env = list(zip(workers.axis_name, workers.sizes, strict=True))

    def run(extra: ExtraArgs) -> tuple[Any, list[str]]:
        def both(params: Any, arrays: Any) -> Any:
            return extra.update_of(tx)(params, tx.init(params), params, arrays)

        traced = jax.make_jaxpr(both, axis_env=env)(params, extra.arrays)
        return traced, extra.names

    try:
        program, names = with_extra_args(run, params, extra_args)
    except (TypeError, LookupError, AttributeError):
        program, names = None, []
    start = None if program and not names else jax.make_jaxpr(tx.init, axis_env=env)
    lines = {_CONFIGURATION: text_digest(start(params) if start else program)}
    if not program:
        lines[_UPDATE] = UNSEEN
    elif names:
        lines[_UPDATE] = f"{text_digest(program)} with {', '.join(names)}"
    if program and (arrays := list(arrays_of(program))):
        lines["the arrays of the transformation (digest)"] = arrays_digest(arrays)
    return lines


def _gather(text: str) -> list[str]:
    """The texts of all processes, in their order."""
    if jax.process_count() == 1:  # also inside a trace
        return [text]
    raw = np.frombuffer(text.encode(), np.uint8)
    sizes = np.asarray(multihost_utils.process_allgather(jnp.int32(raw.size)))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: raw.size] = raw
    rows = np.asarray(multihost_utils.process_allgather(padded))
    return [
        row[:size].tobytes().decode() for row, size in zip(rows, sizes, strict=True)
    ]

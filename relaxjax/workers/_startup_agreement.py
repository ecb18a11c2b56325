"""Processes compare what they are about to run, before they run it.

A process with another model, another configuration or another version would otherwise
hang the first collective, or silently train something else. Each process describes what
it has in lines of text; all lines are compared with process 0's, and every process
raises the same error.

Where a mesh has other axes, a worker is a group of devices, which may lie on several
processes. Each of them gives the worker's rows, and JAX takes what they give for copies
of one array, whatever is in them: the worker would train on unlike rows.

    steps 1, 2, 4, 8, ...: digests of each shared worker's rows, gathered and compared

Where no worker is shared, processes that all give the same rows in the first step are
warned of, as is a process that `relaxjax run` has started and that has not joined.

Cost: two small all-gathers at start-up; nothing with one process. In the first step,
and in those steps where a worker is shared, a hash of the batch on the host and a small
all-gather.
"""

import hashlib
import os
import platform
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from relaxjax._core._tree import is_key, layout_of, leaf_names
from relaxjax._core.foreign._job import COUNT, TOKEN
from relaxjax._core.foreign._together import texts_of_all
from relaxjax._core.traced._digests import (
    arrays_digest,
    arrays_of,
    text_digest,
    without_addresses,
)
from relaxjax._core.traced._extra_args import ExtraArgs, with_extra_args
from relaxjax.workers._batches import described, is_own_rows
from relaxjax.workers._mesh import WorkerMesh
from relaxjax.workers._processes import holders_of

_CONFIGURATION = "the configuration of the transformation (digest of its program)"
_UPDATE = "the update of the transformation (digest of its program)"
UNSEEN = "could not be traced"
TREE = "the tree structure"
MESH = "the mesh"
_ARRAYS = "the arrays of the transformation (digest)"
_START = "Start every process with the same script, configuration, data and versions"
_SHARES = (
    "Each process gives its workers' rows, as many for each worker as the other "
    "processes, of the same dtype and shape, or else a jax.Array of the rows of all"
)
_PACKAGES = ("jax", "jaxlib", "numpy", "optax", "relaxjax")


def require_agreement(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    extra_args: Mapping[str, Any] | None = None,
) -> None:
    """Raises on every process if any process differs from process 0."""
    _warn_of_one_alone()
    if workers.processes > 1:
        require_equal_processes("init", describe(tx, params, workers, extra_args))


def require_equal_processes(
    caller: str, mine: Mapping[str, str], remedy: str = _START
) -> None:
    """Raises on every process if one has another table, of one-line names and values.

    The error names all differences between process 0 and the first that differs.
    """
    tables = _gathered(caller, mine)
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
                f"{caller}: processes disagree on "
                + "; on ".join(wrong)
                + f". {remedy}"
            )


def require_like_batches(batch: Any, workers: WorkerMesh, call: int) -> None:
    """Raises on every process if the batches of two do not go together."""
    if workers.processes == 1:
        return  # of another job's processes, if there are any
    if call == 1:
        require_equal_processes("data_parallel", described(batch, workers), _SHARES)
    if call & (call - 1) or not isinstance(workers.mesh, Mesh):
        return
    holders = holders_of(workers.mesh, workers.axis_name)
    here = [i for i, own in enumerate(holders) if jax.process_index() in own]
    if max(map(len, holders)) > 1:
        _require_same_rows(_row_digests(batch, workers, here), workers)
    elif call == 1:
        _warn_of_same_rows(_row_digests(batch, workers, here, varied=True))


def _warn_of_one_alone() -> None:
    """Warns in a process of a job that has not joined the others."""
    count = os.environ.get(COUNT, "")
    if not (TOKEN in os.environ and count.isdecimal() and int(count) > 1):
        return
    if jax.process_count() == 1:
        warnings.warn(
            f"init: relaxjax run has started this process as one of {count}, and it "
            "has not joined them: each would train a model of its own, on its own "
            "devices. Call relaxjax.hosts.join() first, before JAX is used",
            stacklevel=4,
        )


def _warn_of_same_rows(mine: dict[str, str]) -> None:
    """Warns on every process if all give the same rows."""
    each = [[*table.values()] for table in _gathered("data_parallel", mine)]
    if len(each) > 1 and each[0] and all(rows == each[0] for rows in each):
        warnings.warn(
            f"data_parallel: all {len(each)} processes give the same rows as the first "
            "batch, so that each row is trained on once by every process, and the rest "
            "of a larger batch is missing. Give each process rows of its own, as in "
            "rows[jax.process_index()::jax.process_count()], or another seed",
            stacklevel=6,
        )


def _require_same_rows(mine: dict[str, str], workers: WorkerMesh) -> None:
    """Raises on every process if two give unlike rows of one worker."""
    first: dict[str, tuple[int, str]] = {}
    for process, table in enumerate(_gathered("data_parallel", mine)):
        for what, digest in table.items():
            other, theirs = first.setdefault(what, (process, digest))
            if digest != theirs:
                raise ValueError(
                    f"data_parallel: processes {other} and {process} give unlike rows "
                    f"as {what}, which has devices of both. Rows go by worker, and not "
                    "by process: every process gives the rows of all workers that it "
                    "has devices of, in their order. Or give an array of all rows, as "
                    "jax.make_array_from_callback(shape, NamedSharding(mesh, "
                    f"P{workers.axis_name}), lambda index: rows[index]) makes it"
                )


def _row_digests(
    batch: Any, workers: WorkerMesh, here: list[int], *, varied: bool = False
) -> dict[str, str]:
    """A digest of each leaf's rows of each worker that this process has devices of.

    With `varied`, leaves whose rows are all alike are left out.
    """
    found = {}
    for name, leaf in zip(leaf_names(batch), jax.tree.leaves(batch), strict=True):
        if not is_own_rows(leaf, workers) or not jnp.shape(leaf):
            continue
        typed = isinstance(leaf, jax.Array) and is_key(leaf)
        rows = np.asarray(jax.random.key_data(leaf) if typed else leaf)
        if varied and (rows == rows[:1]).all():
            continue
        size = len(rows) // (len(here) or 1)
        for place, worker in enumerate(here):
            part = rows[place * size :][:size].tobytes()
            digest = hashlib.sha256(part).hexdigest()[:16]
            found[f"batch leaf {name!r} of worker {worker}"] = digest
    return found


def _gathered(caller: str, mine: Mapping[str, str]) -> list[dict[str, str]]:
    """The tables of all processes, of one-line names and values, in their order."""
    lines = "\n".join(f"{key}\t{value}" for key, value in mine.items())
    texts = texts_of_all(caller, lines)
    return [dict(line.split("\t", 1) for line in text.splitlines()) for text in texts]


def describe(
    tx: optax.GradientTransformation,
    params: Any,
    workers: WorkerMesh,
    extra_args: Mapping[str, Any] | None = None,
) -> dict[str, str]:
    """What this process is about to run, as names and values."""
    leaves = layout_of(params).leaves
    return {
        **{version_line(name): text for name, text in versions().items()},
        MESH: str(dict(workers.mesh.shape)),
        **{f"leaf {name!r}": spelling for name, spelling in leaves.items()},
        TREE: bare_text(str(jax.tree.structure(params))),
        **_digests(tx, params, workers, extra_args),
    }


def version_line(package: str) -> str:
    """The name of the line that has a version."""
    return f"the version of {package}"


VERSIONS = frozenset(map(version_line, ("python", *_PACKAGES)))
DIGESTS = frozenset((_CONFIGURATION, _UPDATE, _ARRAYS))
"""Names of lines that `describe` writes."""


def bare_text(text: str) -> str:
    """A structure's text on one line, without addresses, which each process has own."""
    return " ".join(without_addresses(text).split())


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
        lines[_ARRAYS] = arrays_digest(arrays)
    return lines

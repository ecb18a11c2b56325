"""The timeline of a real run, in the form of a simulated one.

`jax.profiler` writes what each device executed; names of instructions are translated
to the scopes of the user's program (`jax.named_scope`: buckets, relaxations), so that
a predicted and a measured timeline can be laid side by side.

On a GPU each stream is the device's own time line. On a CPU operations are timed on
the threads that ran them, and emulated devices share the cores: there the order and
the names are to be trusted, and the times only as far as cores outnumber devices.
"""

import gzip
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from relaxjax.schedule._check import check_count
from relaxjax.schedule._engine import Span
from relaxjax.schedule._hlo import Instruction, parse_hlo, shape_nbytes
from relaxjax.schedule._timeline import Clock, Timeline

_COLLECTIVES = (
    "all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all",
    "collective-broadcast", "send", "recv",
)  # fmt: skip


def record(
    step: Callable[..., Any], *args: Any, steps: int = 3, name: str = "measured"
) -> Timeline:
    """Runs a step under JAX's profiler and returns its timeline.

    Args:
        step: a function of arrays, jitted or not; called with the same arguments each
            time, so it must not donate them.
        *args: its arguments.
        steps: how many times it runs, after once to warm up.
        name: of the timeline.

    Returns:
        For each device a track of computation and one of collectives; a collective
        carries the bytes of its result.

    Raises:
        ValueError: fewer than one step.
        RuntimeError: the profiler saw no operation of the step.

    Example:
        >>> import jax.numpy as jnp
        >>> def step(x):
        ...     with jax.named_scope("bucket0"):
        ...         return x @ x
        >>> timeline = record(step, jnp.ones((64, 64)), steps=1)
        >>> any("bucket0" in span.name for span in timeline.spans)
        True
    """
    check_count("steps", steps)
    lower = getattr(step, "lower", None) or jax.jit(step).lower
    compiled = lower(*args).compile()
    instructions = _by_name(compiled.as_text())
    jax.block_until_ready(compiled(*args))
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            for _ in range(steps):
                jax.block_until_ready(compiled(*args))
        events = _read_events(Path(folder))
    spans = _spans(events, instructions)
    if not spans:
        raise RuntimeError(
            "the profiler saw no operation of the step: is another profile running, or "
            "is the step empty?"
        )
    return Timeline(name, spans, _clock(spans))


def _by_name(text: str | None) -> dict[str, Instruction]:
    computations, _ = parse_hlo(text or "")
    return {i.name: i for body in computations.values() for i in body}


def _read_events(folder: Path) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*.trace.json.gz")):
        with gzip.open(path, "rt") as file:
            events += json.load(file)["traceEvents"]
    return [e for e in events if e.get("ph") == "X" and "hlo_op" in e.get("args", {})]


def _spans(
    events: list[dict[str, Any]], instructions: Mapping[str, Instruction]
) -> list[Span]:
    """One span for each event of a known instruction, from time 0 on."""
    known = [e for e in events if e["args"]["hlo_op"] in instructions]
    known.sort(key=lambda e: e["ts"])
    runs: dict[str, int] = {}
    spans = []
    for event in known:
        details = event["args"]
        instruction = instructions[details["hlo_op"]]
        # Each execution of the program has its own run_id: one step of all devices.
        step = runs.setdefault(details.get("run_id", "0"), len(runs))
        device = int(details.get("device_ordinal", 0))
        moves = instruction.opcode.startswith(_COLLECTIVES)
        start = (event["ts"] - known[0]["ts"]) * 1e-6
        spans.append(
            Span(
                f"worker {device} " + ("network" if moves else "compute"),
                _scope(instruction),
                start,
                start + event.get("dur", 0.0) * 1e-6,
                shape_nbytes(instruction.shape) if moves else 0,
                device,
                step,
            )
        )
    return spans


def _scope(instruction: Instruction) -> str:
    """The path of named scopes, without the names of jitted functions."""
    found = re.search(r'op_name="([^"]*)"', instruction.rest)
    if not found:
        return instruction.name
    parts = [p for p in found[1].split("/") if not p.startswith(("jit(", "pjit("))]
    return "/".join(parts) or instruction.name


def _clock(spans: list[Span]) -> Clock:
    """Steps begin with their first and end with their last operation."""
    devices = sorted({span.worker for span in spans})
    clock = Clock(len(devices))
    for place, device in enumerate(devices):
        for step in sorted({s.step for s in spans if s.worker == device}):
            own = [s for s in spans if s.worker == device and s.step == step]
            clock.begin(place, min(s.start for s in own))
            clock.end(place, max(s.end for s in own))
    return clock

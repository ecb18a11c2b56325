"""The timeline of a real run, in the form of a simulated one.

`jax.profiler` writes what each device executed; names of instructions are translated
to the scopes of the user's program (`jax.named_scope`: buckets, relaxations), so that
a predicted and a measured timeline can be laid side by side.

On a GPU each stream is the device's own timeline. On a CPU operations are timed on the
threads that ran them, and emulated devices share the cores: trust the order and the
names there, and the times only if there are more cores than devices.
"""

import gzip
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from relaxjax._core.foreign._fields import check_count
from relaxjax.programs import Instruction, lowered, parse, shape_nbytes
from relaxjax.schedule.simulator._engine import Span
from relaxjax.schedule.simulator._timeline import Timeline, TraceClock

_COLLECTIVES = (
    "all-reduce", "all-gather", "reduce-scatter", "collective-permute", "all-to-all",
    "collective-broadcast", "send", "recv",
)  # fmt: skip


def record(
    step: Callable[..., Any], *args: Any, steps: int = 3, name: str = "measured"
) -> Timeline:
    """Runs a step under JAX's profiler and returns its timeline.

    Args:
      step: a function of arrays, jitted or not, or what `relaxjax.data_parallel`
        returns; called with the same arguments each time, so it must not donate them.
      *args: the arguments of `step`.
      steps: number of recorded runs, after one to warm up.
      name: the name of the timeline.

    Returns:
      For each device, a track of computation and one of collectives; a collective
      carries the bytes of its result. Operations that a device runs at the same time
      get further tracks, such as "worker 0 compute 2". Other programs that the step
      starts, such as the one for its metrics, are left out.

    Raises:
      TypeError: `steps` is not a whole number.
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
    run: Any = step if hasattr(step, "lower") else jax.jit(step)
    text = lowered(run, *args).compile().as_text() or ""
    events = [e for e in _profile(run, args, steps) if _module(e) == _module_name(text)]
    bodies = parse(text).computations.values()
    spans = _spans(events, {i.name: i for body in bodies for i in body})
    if not spans:
        raise RuntimeError(
            "the profiler saw no operation of the step: is another profile running, or "
            "is the step empty?"
        )
    return Timeline(name, _in_lanes(spans), _clock(spans))


def _profile(
    run: Callable[..., Any], args: tuple[Any, ...], steps: int
) -> list[dict[str, Any]]:
    jax.block_until_ready(run(*args))
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            for _ in range(steps):
                jax.block_until_ready(run(*args))
        return _read_events(Path(folder))


def _module_name(text: str) -> str:
    match = re.match(r"HloModule ([\w.\-]+)", text)
    return match[1] if match else ""


def _module(event: Mapping[str, Any]) -> str:
    """The event's module; some profilers add its number in parentheses."""
    return event["args"].get("hlo_module", "").partition("(")[0]


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


def _in_lanes(spans: list[Span]) -> list[Span]:
    """The same spans, those that overlap on one track moved to further tracks."""
    ends: dict[str, list[float]] = {}
    placed = []
    for span in spans:
        lanes = ends.setdefault(span.track, [])
        lane = next((i for i, end in enumerate(lanes) if end <= span.start), len(lanes))
        lanes[lane:] = [span.end, *lanes[lane + 1 :]]
        track = span.track if not lane else f"{span.track} {lane + 1}"
        placed.append(span._replace(track=track))
    return placed


def _scope(instruction: Instruction) -> str:
    """The path of named scopes, without the names of jitted functions."""
    match = re.search(r'op_name="([^"]*)"', instruction.rest)
    if not match:
        return instruction.name
    parts = [p for p in match[1].split("/") if not p.startswith(("jit(", "pjit("))]
    return "/".join(parts) or instruction.name


def _clock(spans: list[Span]) -> TraceClock:
    """Steps begin with their first operation and end with their last one."""
    devices = sorted({span.worker for span in spans})
    clock = TraceClock(len(devices))
    for place, device in enumerate(devices):
        for step in sorted({s.step for s in spans if s.worker == device}):
            ran = [s for s in spans if s.worker == device and s.step == step]
            clock.begin(place, min(s.start for s in ran))
            clock.end(place, max(s.end for s in ran))
    return clock

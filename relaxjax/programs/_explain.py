"""What a transformation does to workers, in words: read from its traced program.

The relaxations in it, in the order in which the gradients pass them, on which side of
the optimizer and over which axes (`relaxjax._core.traced._marks`); what they send, in
which steps of a period (`relaxjax.programs._wire_bytes`); what each worker keeps; and
what `relaxjax.init` would refuse or warn of.

Cost: some traces of `tx.update`, and nothing is computed.
"""

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import require_transformation, require_whole
from relaxjax._core._phases import clocks_of
from relaxjax._core.foreign._html import paragraphs
from relaxjax._core.traced._extra_args import giving
from relaxjax._core.traced._marks import REDUCERS
from relaxjax.periods import is_scheduled
from relaxjax.programs._by_axis import sent_both_ways
from relaxjax.programs._period import Step, expanded, period_of, walked_steps
from relaxjax.workers import (
    WorkerMesh,
    of_one_worker,
    require_synchronized,
    traced,
    workers_of,
)

_SIDES = {
    "gradients": "gradients, before the optimizer",
    "momenta": "gradients, before the optimizer, in place of its momentum",
    "tracking": "gradients, before the optimizer, beside gossip",
    "models": "models, after the optimizer",
    "optimizer": "gradients and optimizer in one",
}
_BEHIND = "updates, behind an optimizer that remembers gradients in {!r}"
_SHOWN = 8  # steps in which something is sent that are listed


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What `explain` found; `str` gives it in lines.

    Attributes:
      relaxations: each one's name, side and axes, in the order of the gradient's way,
        the rule of `relaxjax.merges` that it merges by, if there is one, and for a
        reducer behind an optimizer a field that this remembers gradients in.
      period: steps after which sending begins anew.
      repeats: whether it does; else `period` steps were looked at, which all differ.
      apart: the least and the most steps from one that sends to the next, where a
        schedule says when workers meet; else it is empty.
      bytes_per_step: bytes of the busiest device, the mean over a period.
      sends: bytes of the first steps of a period that send, by their numbers from 0.
      state_mb: megabytes that each worker keeps, by the kind of state.
      phase_ends: counts of steps at which a phase ends and another program begins.
      phases: bytes of a step in each phase, by the steps that are taken before it: a
        mean, in the last one over the steps that are looked at; empty if there is one.
      problems: what `relaxjax.init` refuses or warns of.
      loss_sends: bytes that the loss sends in a step, forward and backward, by the
        axes on which it sends; empty without a loss.
    """

    relaxations: list[dict[str, Any]]
    period: int
    repeats: bool
    apart: list[int]
    bytes_per_step: float
    sends: dict[int, int]
    state_mb: dict[str, float]
    phase_ends: list[int]
    problems: list[str]
    phases: dict[int, float] = field(default_factory=dict)
    loss_sends: dict[str, list[int]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """The same lines for a notebook."""
        return paragraphs(str(self).splitlines())

    def __str__(self) -> str:
        """A line for each fact."""
        lines = [
            f"{i + 1}. {x['name']} over {', '.join(x['axes'])}: {_side(x)}"
            + (f"; merges by {x['merge']}" if "merge" in x else "")
            for i, x in enumerate(self.relaxations)
        ] or ["no relaxation"]
        alike = set(self.sends.values()) <= {self.bytes_per_step}
        if self.apart:
            least, most = self.apart
            every = f"the mean of the first {self.period} steps, by a schedule: "
            every += f"{least} .. {most} steps from one meeting to the next"
        elif not self.repeats:
            every = f"the mean of the first {self.period} steps, which have no period"
        else:
            every = "every step" if alike else f"a period of {self.period} steps"
        lines.append(f"sends {_shown(self.bytes_per_step)} bytes a step; {every}")
        if not alike:
            steps = (f"{size:,} in step {step}" for step, size in self.sends.items())
            lines.append(f"of which {', '.join(steps) or 'none in the first steps'}")
        lines += [
            f"the loss sends {forward:,} bytes forward and {backward:,} backward over "
            + axis
            for axis, (forward, backward) in self.loss_sends.items()
        ]
        kept = ", ".join(f"{kind} {mb:.3g} MB" for kind, mb in self.state_mb.items())
        lines.append(f"each worker keeps {kept or 'nothing'}")
        if self.phase_ends:
            told = [f"{_shown(x)} from step {k} on" for k, x in self.phases.items()]
            lines.append(f"phase by phase, bytes a step: {', '.join(told)}")
            ends = f"phases end after {self.phase_ends} steps"
            lines.append(f"{ends}: in a loop of your own call advance_phases, or each")
            lines.append("step holds all phases, and nothing overlaps on a GPU")
        return "\n".join([*lines, *(f"problem: {x}" for x in self.problems)])


def explain(
    tx: optax.GradientTransformation,
    params: Any,
    mesh: Any,
    *,
    axis_name: AxisName | None = None,
    extra_args: Mapping[str, Any] | None = None,
    steps: int = 1000,
    loss: Callable[[Any, Any], Any] | None = None,
    batch: Any = None,
) -> Explanation:
    """Says what stands where in a chain, what it sends, and what each worker keeps.

    Args:
      tx: the transformation that the train step uses.
      params: a pytree of arrays or `jax.ShapeDtypeStruct`, as for one device; or the
        shards that `relaxjax.fsdp.init` returns, of which one worker's slices count.
      mesh: a mesh, or `relaxjax.emulate(...)`.
      axis_name: the data-parallel axes; None means all axes of the mesh.
      extra_args: arrays (or their shapes and dtypes) and functions that `tx.update`
        takes by name beside params, to trace it with. Those that optax's optimizers
        ask for (`value`, `grad`, `value_fn`, `obj_fn`, `grad_fn`) need not be given.
      steps: the number of first steps that are looked at where there are phases, or a
        schedule of `relaxjax.periods` says when workers meet, 1 or more. Else a period
        is.
      loss: `loss(params, batch)` of one worker, a number or a number and more, that
        sends something itself, as `relaxjax.activations` do. Its bytes are counted on
        all axes of the mesh.
      batch: a worker's arrays (or their shapes and dtypes) for the loss.

    Returns:
      An `Explanation`; print it, or take its `as_dict()`.

    Raises:
      TypeError: `mesh` is not a mesh.
      ValueError: unknown axis; `steps < 1`.

    Example:
      >>> import jax.numpy as jnp, optax, relaxjax
      >>> tx = relaxjax.diloco(optax.sgd(0.1), "data", sync_every=10)
      >>> print(relaxjax.explain(tx, jnp.zeros(1000), relaxjax.emulate(4)))
      1. diloco over data: models, after the optimizer
      sends 600 bytes a step; a period of 10 steps
      of which 6,000 in step 9
      each worker keeps OuterState 0.008 MB
    """
    require_transformation("explain", "tx", tx)
    require_whole("explain", "steps", steps)
    workers = workers_of(mesh, axis_name, "explain")
    params = of_one_worker("explain", params, workers.n)
    with giving(extra_args):
        seen = traced(tx, params, workers, extra_args)
        flows, state = seen.flows, seen.state
        stations = sorted(flows.stations, key=lambda x: x.number) if flows else []
        rules: dict[Any, dict[str, str]] = {x: {} for x in stations}
        if flows:
            for at, rule in flows.merges:
                rules[at]["merge"] = rule
            for at, kept in sorted(flows.led, reverse=True):
                if at.side in REDUCERS:
                    rules[at]["behind"] = kept
        seen_steps, repeats = period_of(tx, params, workers, extra_args, steps)
        sent = [step.sent for step in seen_steps]
        sizes = {step: int(x.max()) for step, x in enumerate(sent) if x.any()}

        def looked(count: int) -> list[Step]:
            return expanded(walked_steps(tx, params, workers, count, extra_args))

        ends = sorted({end for clock in clocks_of(state) for end in clock.ends if end})
        return Explanation(
            relaxations=[
                x._asdict() | {"axes": list(x.axes)} | rules[x] for x in stations
            ],
            period=len(sent),
            repeats=repeats,
            apart=_apart([*sizes]) if is_scheduled(state) else [],
            bytes_per_step=int(np.sum(sent, axis=0).max()) / len(sent),
            sends=dict(itertools.islice(sizes.items(), _SHOWN)),
            state_mb=_sizes(state),
            phase_ends=ends,
            problems=_problems(tx, params, workers, extra_args, seen),
            phases=_phases(ends, looked(max([steps, *ends]) + 1)) if ends else {},
            loss_sends=_loss_sends(loss, params, batch, workers) if loss else {},
        )


def _side(relaxation: dict[str, Any]) -> str:
    """Where it stands, in words."""
    if kept := relaxation.get("behind"):
        return _BEHIND.format(kept)
    return _SIDES[relaxation["side"]]


def _phases(ends: list[int], steps: Sequence[Step]) -> dict[int, float]:
    """Bytes of the busiest device in a step of each phase, a mean."""
    return {
        start: int(np.sum([x.sent for x in steps[start:stop]], axis=0).max())
        / len(steps[start:stop])
        for start, stop in itertools.pairwise([0, *ends, len(steps)])
    }


def _shown(size: float) -> str:
    return f"{size:,.1f}".removesuffix(".0")


def _loss_sends(
    loss: Callable[[Any, Any], Any], params: Any, batch: Any, workers: WorkerMesh
) -> dict[str, list[int]]:
    """Bytes forward and backward by axis, where there are some."""

    def value(params: Any) -> jax.Array:
        like = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), batch)
        return jax.tree.leaves(loss(params, like))[0]

    sent = sent_both_ways(value, (params,), dict(workers.mesh.shape))
    return {axis: [*both] for axis, both in sent.items() if any(both)}


def _apart(steps: list[int]) -> list[int]:
    """The least and the most from one of the steps, or the start, to the next."""
    gaps = [b - a for a, b in itertools.pairwise([-1, *steps])]
    return [min(gaps), max(gaps)] if gaps else []


def _problems(*what: Any) -> list[str]:
    """What `init` says of the chain."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            require_synchronized(*what)
        except ValueError as error:
            return [str(error)]
    return [str(warning.message) for warning in said]


def _sizes(state: Any) -> dict[str, float]:
    """Megabytes of a worker's state by the class that holds them, largest first."""
    sizes: Counter[str] = Counter()
    for part in jax.tree.leaves(state, is_leaf=lambda x: hasattr(x, "_fields")):
        if hasattr(part, "_fields"):
            leaves = jax.tree.leaves(part)
            sizes[type(part).__name__] += sum(x.size * x.dtype.itemsize for x in leaves)
        else:
            sizes["other"] += part.size * part.dtype.itemsize
    return {name: size / 1e6 for name, size in sizes.most_common() if size}

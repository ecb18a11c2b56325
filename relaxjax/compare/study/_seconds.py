"""Seconds of a step on a network: one part measured or stated, the other predicted.

compute     a worker's share of a batch through forward and backward pass and the
            optimizer, on this machine; or stated
messages    `relaxjax.plan`: from links, codecs and what the relaxation sends, with
            those of its options that change it; where plans do not know it, the bytes
            of its traced program, and a latency for each message that waits for
            another
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from relaxjax import plan
from relaxjax._core.foreign._rates import NUMBER, RATE, bytes_per_second
from relaxjax._names import parse
from relaxjax.compare.study._methods import Method, Options, named
from relaxjax.compare.study._one_run import Shape
from relaxjax.programs import steps_of_a_run
from relaxjax.schedule import Link
from relaxjax.tasks import Task, optimizer_of, train_step_of
from relaxjax.workers import emulate, workers_of

STATED = "stated"
MEASURED = "measured: the median step of one worker's share of a batch, on this machine"
GBPS = (0.02, 0.1, 0.5, 1.0, 5.0, 25.0, 100.0)
LATENCY_MS = (0.01, 0.1, 1.0, 10.0, 50.0)
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_NETWORK = re.compile(rf"{RATE},{NUMBER}({'|'.join(_TIMES)})")


def link_of(text: str) -> Link:
    """A link from its bandwidth and latency, as in `1gbit,10ms`.

    Raises:
      ValueError: it is spelled otherwise.
    """
    match = _NETWORK.fullmatch(text.strip().lower())
    if not match:
        raise ValueError(
            f"network={text!r} must be a bandwidth and a latency, as in 1gbit,10ms or "
            "25gbit,50us (kbit, mbit, gbit; us, ms, s)"
        )
    bandwidth, unit, latency, time = match.groups()
    return Link(float(latency) * _TIMES[time], bytes_per_second(bandwidth, unit))


def compute_seconds(task: Task, shape: Shape) -> float:
    """Seconds of a step of one worker, without communication, on this machine."""
    tx = optimizer_of(task).make(task.learning_rate)
    step = jax.jit(train_step_of(task, tx))
    batch = next(task.batches(0, shape.batch_size // shape.workers))
    state: list[Any] = [task.params, tx.init(task.params)]
    if task.state is not None:
        state.append(task.state)
    return plan.step_seconds(step, *state, batch)


class _Traffic(NamedTuple):
    sent: float  # bytes of a step
    rounds: float  # messages of a step that wait for each other
    every: float  # steps from one that sends to the next


class Seconds:
    """Predicted seconds of a step of each method, on any link.

    Args:
      found: the methods.
      task: the task, whose params are sent.
      shape: workers and rows.
      compute: seconds of a step without communication.
    """

    def __init__(
        self, found: Sequence[Method], task: Task, shape: Shape, compute: float
    ):
        self._methods = {method.label: method for method in found}
        self._shape, self._task = shape, task
        self._traffic: dict[str, _Traffic] = {}
        self._sends: dict[str, dict[str, float]] = {}
        self._model = plan.Model(
            params=jax.eval_shape(lambda: task.params), compute=compute
        )

    def _traced(self, method: Method) -> _Traffic:
        """The means of a period; under a schedule, or with phases, of the run."""
        if method.label not in self._traffic:
            tx = method.build(1.0, {}, self._shape.steps, self._shape.workers)
            workers = workers_of(emulate(self._shape.workers), None, "compare")
            count = self._shape.steps
            steps = steps_of_a_run(tx, self._task.params, workers, count)
            sent = float(np.mean([step.sent for step in steps], axis=0).max())
            rounds = float(np.mean([step.rounds for step in steps]))
            sending = sum(step.sent.any() for step in steps)
            every = len(steps) / max(1, sending)
            self._traffic[method.label] = _Traffic(sent, rounds, every)
        return self._traffic[method.label]

    def _known(self, method: Method, network: plan.Network) -> float | None:
        """Seconds by the plan, if need be without options that change nothing sent."""
        if not method.name:
            return None
        if "periods" in method.fixed and not self._traced(method).sent:
            return self._model.compute  # the run ends before its first exchange
        for options in (method.fixed, self._options_that_send(method)):
            options = self._with_mean_period(method, options)
            known = plan.predicted(method.name, self._model, network, options)
            if known is not None:
                return known.seconds
        return None

    def _with_mean_period(self, method: Method, options: Options) -> Options:
        """A schedule as the mean period of the run, if a period is one exchange."""
        kind = parse(method.name).row.sends.kind
        if "periods" not in options or kind not in ("models", "neighbors"):
            return options
        rest = {k: v for k, v in options.items() if k != "periods"}
        return rest | {"sync_every": self._traced(method).every}

    def _options_that_send(self, method: Method) -> dict[str, float]:
        if method.label not in self._sends:
            self._sends[method.label] = {
                k: v for k, v in method.fixed.items() if self._matters(method, k)
            }
        return self._sends[method.label]

    def _matters(self, method: Method, option: str) -> bool:
        """Whether other things are sent without it, or nothing can be."""
        try:
            return self._traced(self._without(method, option)) != self._traced(method)
        except ValueError:
            return True

    def _without(self, method: Method, option: str) -> Method:
        rest = (f"{k}={v}" for k, v in method.fixed.items() if k != option)
        return named(" ".join([method.name, *rest]), self._task)

    def __call__(self, label: str, latency: float, bandwidth: float) -> float:
        """Seconds of a step; latency in seconds, bandwidth in bytes per second."""
        method, link = self._methods[label], Link(latency, bandwidth)
        known = self._known(method, self._network(link))
        if known is not None:
            return known
        sent, rounds, _ = self._traced(method)
        return self._model.compute + rounds * link.latency + link.seconds(sent, 0)

    def source(self, label: str) -> str:
        """Where a method's seconds come from: "plan", or "traced bytes"."""
        known = self._known(self._methods[label], self._network(Link(0.0, 1.0)))
        return "traced bytes" if known is None else "plan"

    def _network(self, link: Link) -> plan.Network:
        return plan.Network(workers=self._shape.workers, link=link, overlap=False)

    def record(self, links: Mapping[str, Link]) -> dict[str, Any]:
        """What `study.json` says of all methods: on these links, and on the grid."""
        return {
            "networks": [
                {"name": name, "latency": link.latency, "bandwidth": link.bandwidth}
                for name, link in links.items()
            ],
            "seconds": {
                label: {
                    name: self(label, link.latency, link.bandwidth)
                    for name, link in links.items()
                }
                for label in self._methods
            },
            "seconds_source": {label: self.source(label) for label in self._methods},
            "map": self.grid(),
        }

    def grid(self) -> dict[str, Any]:
        """All methods over bandwidths and latencies."""
        return {
            "gbps": list(GBPS),
            "latency_ms": list(LATENCY_MS),
            "seconds": {
                label: [
                    [self(label, late / 1e3, wide * 1e9 / 8) for wide in GBPS]
                    for late in LATENCY_MS
                ]
                for label in self._methods
            },
        }

"""Seconds of a step on a network: one part measured or stated, the other predicted.

compute     a worker's share of a batch through forward and backward pass and the
            optimizer, on this machine; or stated
messages    `relaxjax.plan`: from links, codecs and what the relaxation sends; of a
            relaxation that plans do not know, the bytes of its traced program as one
            message after the backward pass
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from relaxjax import plan
from relaxjax.compare._methods import Method
from relaxjax.compare._one_run import Shape
from relaxjax.programs import wire_bytes
from relaxjax.schedule import Link
from relaxjax.tasks import Task, optimizer_of, train_step_of
from relaxjax.workers import emulate

MEASURED = "measured: the median step of one worker's share of a batch, on this machine"
GBPS = (0.02, 0.1, 0.5, 1.0, 5.0, 25.0, 100.0)
LATENCY_MS = (0.01, 0.1, 1.0, 10.0, 50.0)
_UNITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_NETWORK = re.compile(r"([\d.]+)([kmg]?bit),([\d.]+)(us|ms|s)")


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
    return Link(float(latency) * _TIMES[time], float(bandwidth) * _UNITS[unit] / 8)


def compute_seconds(task: Task, shape: Shape) -> float:
    """Seconds of a step of one worker, without communication, on this machine."""
    tx = optimizer_of(task).make(task.learning_rate)
    step = jax.jit(train_step_of(task, tx))
    batch = next(task.batches(0, shape.batch_size // shape.workers))
    state: list[Any] = [task.params, tx.init(task.params)]
    if task.state is not None:
        state.append(task.state)
    return plan.step_seconds(step, *state, batch)


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
        self._bytes: dict[str, float] = {}
        self._model = plan.Model(
            params=jax.eval_shape(lambda: task.params), compute=compute
        )

    def _sent(self, label: str) -> float:
        if label in self._bytes:
            return self._bytes[label]
        build = self._methods[label].build
        tx = build(1.0, {}, self._shape.steps, self._shape.workers)
        mesh = emulate(self._shape.workers)
        self._bytes[label] = float(wire_bytes(tx, self._task.params, mesh))
        return self._bytes[label]

    def __call__(self, label: str, latency: float, bandwidth: float) -> float:
        """Seconds of a step; latency in seconds, bandwidth in bytes per second."""
        method = self._methods[label]
        network = plan.Network(
            workers=self._shape.workers, link=Link(latency, bandwidth), overlap=False
        )
        if method.name:
            known = plan.predicted(method.name, self._model, network, method.fixed)
            if known is not None:
                return known.seconds
        sent, every = self._sent(label), method.fixed.get("sync_every", 1.0)
        link = network.link
        return self._model.compute + link.latency / every + link.seconds(sent, 0)

    def source(self, label: str) -> str:
        """Where a method's seconds come from: "plan", or "traced bytes"."""
        method, network = self._methods[label], plan.Network(workers=2)
        ranked = method.name and plan.predicted(
            method.name, self._model, network, method.fixed
        )
        return "plan" if ranked else "traced bytes"

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

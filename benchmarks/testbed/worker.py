"""A worker: it computes each layer as soon as its leaves and inputs are there.

It computes one layer at a time, the first in the model's list that is ready, as
`relaxjax.schedule` predicts it. Backward the layers run in reverse, and each gradient
is pushed as soon as it exists.

Cost: beside one jitted program for the whole model, a call for each layer.
"""

import socket
import time
from multiprocessing.connection import Connection
from typing import Any

import jax
import numpy as np

from benchmarks.testbed.message import Pace, send
from benchmarks.testbed.model import INPUT
from benchmarks.testbed.pulls import Peer, Pulls
from benchmarks.testbed.pushes import Pushes
from benchmarks.testbed.records import Command, Event, Work, Working
from benchmarks.testbed.stages import Stage, loss_and_gradient, pull_back


def work(config: Working, pipe: Connection) -> None:
    """Runs a worker until its pipe ends; sends a `Work` for each `Command`."""
    worker = _Worker(config)
    pipe.send("ready")
    while (command := pipe.recv()) is not None:
        pipe.send(worker.run(command))


class _Worker:
    def __init__(self, config: Working):
        self._model, self._owner = config.model, config.owner
        pace = Pace(config.place.rate)
        self._peers = [
            _connect(config, index, pace) for index in range(len(config.servers))
        ]
        self._stages = [
            Stage(layer, config.model.needs[layer.name])
            for layer in config.model.layers
        ]
        self._loss = loss_and_gradient(config.model.loss) if config.model.loss else None

    def run(self, command: Command) -> Work:
        """One step."""
        run = _Run(time.perf_counter())
        pulls = Pulls(self._peers, self._model.leaves, run.began)
        orders = [
            [name for name in command.order if self._owner[name] == peer.number]
            for peer in self._peers
        ]
        pulls.start(orders, command.version)
        pushed: list[Event] = []
        if command.kind == "pull":
            every = len(self._owner)
            pulls.first(lambda: True if len(pulls.leaves) == every else None)
            result = {name: np.asarray(leaf) for name, leaf in pulls.leaves.items()}
        elif command.kind == "infer":
            output, _ = self._forward(run, pulls, command.batch, train=False)
            result = np.asarray(output)
        else:
            result, pushed = self._train(run, pulls, command.batch)
        seconds = time.perf_counter() - run.began
        events = tuple(pulls.events), tuple(pushed), tuple(run.events)
        return Work(run.began, seconds, *events, result)

    def _forward(
        self, run: "_Run", pulls: Pulls, inputs: Any, *, train: bool
    ) -> tuple[Any, dict[str, Any]]:
        """The output, and what the backward pass needs of each layer."""
        values, backs = {INPUT: inputs}, {}
        waiting = list(self._stages)

        def ready() -> Stage | None:
            for stage in waiting:
                leaves = self._model.of_layer[stage.name]
                if pulls.leaves.keys() >= set(leaves) and values.keys() >= stage.needs:
                    return stage
            return None

        while waiting:
            stage = pulls.first(ready)
            waiting.remove(stage)
            leaves = [pulls.leaves[n] for n in self._model.of_layer[stage.name]]
            arguments = [values[need] for need in stage.inputs]
            value, back = run.timed(stage.name, stage.run, leaves, arguments, train)
            values[stage.name], backs[stage.name] = value, back
        return values[self._stages[-1].name], backs

    def _train(
        self, run: "_Run", pulls: Pulls, batch: Any
    ) -> tuple[float, list[Event]]:
        assert self._loss is not None
        inputs, targets = batch
        output, backs = self._forward(run, pulls, inputs, train=True)
        loss, slope = run.timed("loss", self._loss, output, targets)
        slopes = {self._stages[-1].name: slope}
        pushes = Pushes(self._peers, self._owner, run.began)
        for stage in reversed(self._stages):
            back, slope = backs.pop(stage.name), slopes.pop(stage.name)
            gradients, others = run.timed(f"back {stage.name}", pull_back, back, slope)
            names = self._model.of_layer[stage.name]
            for name, gradient in zip(names, gradients, strict=True):
                pushes.add(name, np.asarray(gradient))
            for need, other in zip(stage.inner, others, strict=True):
                slopes[need] = slopes[need] + other if need in slopes else other
        pushes.finish()
        return float(loss), pushes.events


class _Run:
    """One step's clock."""

    def __init__(self, began: float):
        self.began = began
        self.events: list[Event] = []

    def timed(self, name: str, function: Any, *args: Any) -> Any:
        """Calls a function, waits for its arrays, and notes when it ran."""
        start = time.perf_counter() - self.began
        result = jax.block_until_ready(function(*args))
        self.events.append(Event(name, start, time.perf_counter() - self.began))
        return result


def _connect(config: Working, index: int, pace: Pace) -> Peer:
    peer = socket.create_connection(config.servers[index], config.wait)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    send(peer, {"kind": "hello", "token": config.token, "worker": config.number})
    return Peer(index, peer, config.wait, pace)

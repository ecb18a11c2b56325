"""A process of the network bench: it waits for a command, obeys, and answers.

Commands are lines of JSON on standard input, answers lines of JSON on what was standard
output when the process began. So a system is started and compiled once, and its blocks
of steps can take turns with those of another: a process that waits for a line computes
nothing.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from benchmarks.network.problem import Problem


class Session(NamedTuple):
    """A method's training, which holds its own state.

    Attributes:
      step: takes a step with this process's rows, waits for its end, returns its loss.
      loss: the loss of this process's model, on some windows.
      taken_over: from another method, as plain data, to its training from here on;
        None: it cannot be taken over.
    """

    step: Callable[[np.ndarray], float]
    loss: Callable[[np.ndarray], float]
    taken_over: "Callable[[dict[str, Any]], Session] | None" = None


class WorkerPlace(NamedTuple):
    """Which process this is.

    Attributes:
      process: index of the process.
      processes: number of processes.
      address: address and port of the first one.
    """

    process: int
    processes: int
    address: str


Begin = Callable[[dict[str, Any]], Session]
"""From a method, as plain data, to its training from the start."""


def serve(begin: Begin, place: WorkerPlace, problem: Problem, answers: IO[str]) -> None:
    """Obeys until standard input ends."""
    trainings: dict[str, Session] = {}
    done: dict[str, int] = {}
    share = place.process, place.processes
    for line in sys.stdin:
        order = json.loads(line)
        name, answer = order["name"], {}
        if order["do"] == "begin":
            trainings[name], done[name] = begin(order["method"]), 0
        elif order["do"] == "take over":
            take_over = trainings[name].taken_over
            assert take_over is not None
            trainings[name] = take_over(order["method"])
        elif order["do"] == "end":
            del trainings[name]
        elif order["do"] == "loss":
            loss = trainings[name].loss(problem.own_windows(*share))
            answer = {"loss": loss, "steps": done[name]}
        else:
            first, count = done[name], order["count"]
            rows = [problem.own_rows(first + i, *share) for i in range(count)]
            answer = _steps(trainings[name].step, rows, order["warm"])
            done[name] += count
        print(json.dumps(answer), file=answers, flush=True)


def _steps(
    step: Callable[[np.ndarray], float], rows: list[np.ndarray], warm: int
) -> dict[str, Any]:
    """Seconds of each step and processor seconds of all, after those that warm up."""
    losses = [step(batch) for batch in rows[:warm]]
    busy, seconds = _busy(), []
    for batch in rows[warm:]:
        start = time.perf_counter()
        losses.append(step(batch))
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds, "busy": _busy() - busy, "losses": losses}


def _busy() -> float:
    """Processor seconds of all threads so far, the kernel's included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(make: Callable[[WorkerPlace, Problem], Begin]) -> None:
    """The main function of a system's module, whose arguments are a file and a place.

    Args:
      make: joins the other processes, and returns how a method begins.
    """
    path, process, processes, address = sys.argv[1:]
    place = WorkerPlace(int(process), int(processes), address)
    problem = Problem.load(Path(path))
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # what libraries print is not an answer
        begin = make(place, problem)
        print(json.dumps({"ready": place.process}), file=answers, flush=True)
        serve(begin, place, problem, answers)

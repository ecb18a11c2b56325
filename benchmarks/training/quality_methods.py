"""What `python -m benchmarks quality-at-bytes` compares: optimizers and methods."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import optax

from benchmarks.training.loop import held_out
from relaxjax import all_reduce, emulate, local_sgd, power_sgd, wire_bytes
from relaxjax.compression import (
    Compressor,
    econtrol,
    error_feedback,
    payload_bytes,
    quantize,
    random_k,
    rotated_sign,
    sign,
    top_k,
)
from relaxjax.tasks import Task, adamw

MESH = emulate(8)
TARGETS = {32: 0.01, 100: 0.01, 400: 0.02}  # by budget, relative difference
_SGD_PEAK = 0.1
_DENSITIES: dict[tuple[str, int, int, str, float], float] = {}
Make = Callable[[float], Compressor]


@dataclass(frozen=True)
class Method:
    """A way to average over the workers.

    Attributes:
      name: names of compressor and feedback.
      make: `make(density)`, the compressor; dense codes ignore the density.
      algorithm: the exchange.
      after: whether the optimizer's updates are compressed, not the gradients.
      optimizer: a key of `OPTIMIZERS`.
      every: number of local steps after which models are averaged; 0 means that every
        step averages gradients or updates.
      rank: rank of PowerSGD in codes of 8 bits; 0 means that a compressor is used.
    """

    name: str
    make: Make | None
    algorithm: str = "two_shot"
    after: bool = True
    optimizer: str = "adamw"
    every: int = 0
    rank: int = 0

    @property
    def label(self) -> str:
        """The method's name in tables and plots."""
        place = "after" if self.after else "before"
        steps = f"{self.every} local steps of " if self.every else ""
        return f"{self.name}, {self.algorithm}, {place} {steps}{self.optimizer}"

    def transformation(
        self, task: Task, steps: int, density: float
    ) -> optax.GradientTransformation:
        """The reducer and the optimizer, in this method's order."""
        reducer = self._reducer(density)
        inner = OPTIMIZERS[self.optimizer](task, steps)
        return optax.chain(*((inner, reducer) if self.after else (reducer, inner)))

    def density(self, task: Task, most: float) -> float:
        """The largest density that sends at most so many bytes, or the least one."""
        if self.make is None:
            return 1.0
        size = sum(x.size for x in jax.tree.leaves(task.params))
        flat = jax.ShapeDtypeStruct((size,), "float32")  # one bucket, as the leaves are
        half = self.make(1 / 2)  # feedback sends nothing more
        if payload_bytes(half, flat) == payload_bytes(self.make(1.0), flat):
            return 1.0  # a dense code
        sent = max(1, self.every), payload_bytes(half, flat)
        key = (half.name, *sent, self.algorithm, most)
        if key not in _DENSITIES:
            _DENSITIES[key] = self._search(flat, most) / size
        return _DENSITIES[key]

    def _search(self, flat: jax.ShapeDtypeStruct, most: float) -> int:
        low, high = 1, flat.size
        while low < high:
            middle = (low + high + 1) // 2
            fits = self._sent(middle / flat.size, flat) <= most
            low, high = (middle, high) if fits else (low, middle - 1)
        return low

    def bytes(self, task: Task, density: float) -> float:
        """Bytes that the busiest worker sends in a step, on average."""
        return self._sent(density, task.params)

    def _sent(self, density: float, params: Any) -> float:
        period = max(1, self.every)
        tx = self._reducer(density)
        return wire_bytes(tx, params, MESH, steps=period) / period

    def _reducer(self, density: float) -> optax.GradientTransformation:
        if self.rank:
            return power_sgd("data", rank=self.rank, bits=8)
        compressor = None if self.make is None else self.make(density)
        knobs: dict[str, Any] = {"algorithm": self.algorithm, "compressor": compressor}
        if self.every:
            return local_sgd("data", self.every, **knobs)
        return all_reduce("data", **knobs)

    def held_out(self, task: Task, steps: int, density: float, seed: int) -> float:
        """The metric of the workers' consensus after training from the task's start.

        Raises:
          ValueError: the last step does not average, so that the consensus would be an
            exchange that nobody counts.
        """
        if self.every and steps % self.every:
            raise ValueError(
                f"--steps {steps}: the last step must average the workers; make it a "
                f"multiple of {self.every}, the local steps of {self.name!r}"
            )
        tx = self.transformation(task, steps, density)
        return held_out(task, tx, MESH, steps=steps, seed=seed)


def _adamw(task: Task, steps: int) -> optax.GradientTransformation:
    """AdamW as in `relaxjax train`."""
    return adamw(task.learning_rate, steps)


def _sgd(task: Task, steps: int) -> optax.GradientTransformation:
    """Momentum SGD, under a rate of the same shape."""
    del task
    rate = optax.warmup_cosine_decay_schedule(
        _SGD_PEAK / 10, _SGD_PEAK, steps // 10, steps + 1
    )
    return optax.sgd(rate, momentum=0.9)


OPTIMIZERS = {"adamw": _adamw, "sgd": _sgd}
BASELINES = tuple(
    Method("uncompressed", None, "psum", after=False, optimizer=o) for o in OPTIMIZERS
)


def methods(budget: int, task: str) -> Iterator[Method]:
    """The methods at 1 / `budget` of the ring; digits are quick, and try more."""
    for budgets, tasks, method in _TABLE:
        if budget in budgets and task in tasks:
            yield method


def _fed(make: Make, wrap: Callable[..., Compressor] = error_feedback) -> Make:
    return lambda p: wrap(make(p))


def _exact(density: float) -> Compressor:
    """Top-k of all elements: each block must keep one, however small it is."""
    return top_k(density, block_size=None)


def _decayed(density: float) -> Compressor:
    return error_feedback(top_k(density), decay=0.95)


def _quantized(density: float) -> Compressor:
    del density
    return quantize(4)


def _local(every: int, optimizer: str) -> tuple[Method, ...]:
    """Four bits of the change of so many steps, with feedback and without."""
    names = {"quantize4" + _EF: _fed(_quantized), "quantize4": _quantized}
    return tuple(
        Method(name, make, optimizer=optimizer, every=every)
        for name, make in names.items()
    )


def _low_rank(rank: int) -> Method:
    return Method(f"power_sgd of rank {rank}, 8 bits", None, after=False, rank=rank)


_EF = " + error_feedback"
_ALL, _BOTH, _DIGITS = tuple(TARGETS), ("digits", "chars"), ("digits",)
_EVERY = {32: 5, 100: 15, 400: 60}  # local steps; 600 steps are a multiple of each
_LOCAL = {"digits": "sgd", "chars": "adamw"}
_SGD: Mapping[str, Any] = {"optimizer": "sgd"}
_BEFORE: Mapping[str, Any] = {"after": False, "optimizer": "sgd"}
_TABLE = (
    *(
        ((budget,), (task,), method)
        for task, optimizer in _LOCAL.items()
        for budget, every in _EVERY.items()
        for method in _local(every, optimizer)
    ),
    ((32,), _BOTH, _low_rank(4)),
    ((100,), _BOTH, _low_rank(1)),
    ((32,), _BOTH, Method("sign" + _EF, _fed(lambda _: sign()))),
    ((32,), _DIGITS, Method("rotated_sign" + _EF, _fed(lambda _: rotated_sign()))),
    ((32,), _BOTH, Method("sign", lambda _: sign())),
    (_ALL, _BOTH, Method("top_k" + _EF, _fed(top_k))),
    ((400,), ("chars",), Method("top_k", top_k)),
    ((100,), _DIGITS, Method("top_k" + _EF, _fed(top_k), after=False)),
    (_ALL, _DIGITS, Method("top_k" + _EF, _fed(top_k), **_SGD)),
    (_ALL, _DIGITS, Method("top_k", top_k, **_SGD)),
    (_ALL, _DIGITS, Method("top_k" + _EF, _fed(top_k), "one_shot", **_SGD)),
    ((400,), _DIGITS, Method("exact top_k" + _EF, _fed(_exact), "one_shot", **_SGD)),
    ((100,), _DIGITS, Method("top_k" + _EF, _fed(top_k), **_BEFORE)),
    ((100,), _DIGITS, Method("top_k" + _EF + "(decay=0.95)", _decayed, **_SGD)),
    ((100,), _DIGITS, Method("top_k + econtrol", _fed(top_k, econtrol), **_BEFORE)),
    ((100,), _DIGITS, Method("random_k" + _EF, _fed(random_k), "psum", **_SGD)),
)

"""What `relaxjax bench quality-at-bytes` compares: optimizers, methods, budgets."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import jax
import optax

from relaxjax._all_reduce import all_reduce
from relaxjax._consensus import consensus
from relaxjax._data_parallel import data_parallel
from relaxjax._init import init
from relaxjax._mesh import emulate
from relaxjax._wire import wire_bytes
from relaxjax.cli._wishes import Wishes, optimizer
from relaxjax.compression import (
    Compressor,
    econtrol,
    ef21,
    ef21_sgdm,
    error_feedback,
    random_block,
    random_k,
    rotated_sign,
    sign,
    top_k,
)
from relaxjax.tasks import Task

MESH = emulate(8)
TARGETS = {32: 0.01, 100: 0.01, 400: 0.02}  # by budget, relative difference
_SGD_PEAK = 0.1


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to average over the workers.

    Attributes:
      name: of compressor and feedback.
      make: from a density to the compressor; dense codes ignore it.
      algorithm: the exchange.
      after: whether the optimizer's updates are compressed, not the gradients.
      optimizer: a key of `OPTIMIZERS`.
    """

    name: str
    make: Callable[[float], Compressor] | None
    algorithm: str
    after: bool = True
    optimizer: str = "adamw"

    @property
    def label(self) -> str:
        """As in tables and plots."""
        place = "after" if self.after else "before"
        return f"{self.name}, {self.algorithm}, {place} {self.optimizer}"

    def transformation(
        self, task: Task, steps: int, density: float
    ) -> optax.GradientTransformation:
        """The reducer and the optimizer, in this method's order."""
        reducer = self._reducer(density)
        inner = OPTIMIZERS[self.optimizer](task, steps)
        return optax.chain(*((inner, reducer) if self.after else (reducer, inner)))

    def density(self, task: Task, most: float) -> float:
        """The largest density that sends at most so many bytes; least if none does."""
        if self.make is None:
            return 1.0
        size = high = sum(x.size for x in jax.tree.leaves(task.params))
        low = 1
        flat = jax.ShapeDtypeStruct((size,), "float32")  # one bucket, as the leaves are
        while low < high:
            middle = (low + high + 1) // 2
            if wire_bytes(self._reducer(middle / size), flat, MESH) <= most:
                low = middle
            else:
                high = middle - 1
        return low / size

    def bytes(self, task: Task, density: float) -> int:
        """What the busiest worker sends in a step."""
        return wire_bytes(self._reducer(density), task.params, MESH)

    def _reducer(self, density: float) -> optax.GradientTransformation:
        compressor = None if self.make is None else self.make(density)
        return all_reduce("data", algorithm=self.algorithm, compressor=compressor)

    def held_out(self, task: Task, steps: int, density: float, seed: int) -> float:
        """The metric of the workers' consensus after training from the task's start."""
        tx = self.transformation(task, steps, density)

        def train_step(params, opt_state, batch):
            loss, grads = jax.value_and_grad(task.loss)(params, batch)
            updates, opt_state = tx.update(grads, opt_state, params)
            return optax.apply_updates(params, updates), opt_state, {"loss": loss}

        step = data_parallel(train_step, MESH, donate=True)
        state = init(tx, task.params, MESH)
        batches = task.batches(seed, task.batch_size)
        for _ in range(steps):
            *state, _ = step(*state, next(batches))
        return float(task.metric(consensus(state[0])))


def _adamw(task: Task, steps: int) -> optax.GradientTransformation:
    """As `relaxjax train` has it."""
    return optimizer(Wishes(), task, steps)


def _sgd(task: Task, steps: int) -> optax.GradientTransformation:
    """Momentum, under a rate of the same shape."""
    del task
    rate = optax.warmup_cosine_decay_schedule(
        _SGD_PEAK / 10, _SGD_PEAK, steps // 10, steps + 1
    )
    return optax.sgd(rate, momentum=0.9)


OPTIMIZERS = {"adamw": _adamw, "sgd": _sgd}
BASELINES = tuple(
    Method(name="uncompressed", make=None, algorithm="psum", after=False, optimizer=o)
    for o in OPTIMIZERS
)


def methods(budget: int, task: str) -> Iterator[Method]:
    """What is compared at 1 / `budget` of the ring; digits are quick and try more."""
    if budget == 32:
        yield from _one_bit()
    first, *others = _sparse("adamw")
    yield first
    if task == "digits":
        yield from _sparse("sgd")
    elif budget > 32:
        yield from others[: 3 if budget == 100 else 2]
    if budget == 100:
        yield _before("adamw")
        if task == "digits":
            yield _before("sgd")
            yield from _other_feedback()


def _one_bit() -> Iterator[Method]:
    """Dense codes of one bit per element."""
    made = {
        "sign + error_feedback": lambda _: error_feedback(sign()),
        "rotated_sign + error_feedback": lambda _: error_feedback(rotated_sign()),
        "sign": lambda _: sign(),
    }
    for name, make in made.items():
        yield Method(name=name, make=make, algorithm="two_shot")


def _sparse(optimizer_name: str) -> Iterator[Method]:
    """Top-k with feedback and without; by another exchange; random-k."""
    made = [
        ("top_k + error_feedback", lambda p: error_feedback(top_k(p)), "two_shot"),
        ("top_k", top_k, "two_shot"),
        ("top_k + error_feedback", lambda p: error_feedback(top_k(p)), "one_shot"),
        ("random_k + error_feedback", lambda p: error_feedback(random_k(p)), "psum"),
    ]
    for name, make, algorithm in made:
        yield Method(
            name=name, make=make, algorithm=algorithm, optimizer=optimizer_name
        )


def _before(optimizer_name: str) -> Method:
    """Gradients compressed before the optimizer."""
    return Method(
        name="top_k + error_feedback",
        make=lambda p: error_feedback(top_k(p)),
        algorithm="two_shot",
        after=False,
        optimizer=optimizer_name,
    )


def _other_feedback() -> Iterator[Method]:
    """Other feedbacks, which estimate gradients, and other samples."""
    made = {
        "top_k + error_feedback(decay=0.95)": lambda p: error_feedback(
            top_k(p), decay=0.95
        ),
        "top_k + ef21": lambda p: ef21(top_k(p)),
        "top_k + ef21_sgdm": lambda p: ef21_sgdm(top_k(p)),
        "top_k + econtrol": lambda p: econtrol(top_k(p)),
        "random_k": random_k,
        "random_block + error_feedback": lambda p: error_feedback(random_block(p)),
    }
    for name, make in made.items():
        yield Method(
            name=name,
            make=make,
            algorithm="two_shot" if name.startswith("top_k") else "psum",
            after="error_feedback" in name,
            optimizer="sgd",
        )

"""What a server holds: leaves, the gradients that have come, and the optimizer.

The update of a leaf runs when its gradient has come from every worker:

    g = 1/n sum_i g_i,        w, s <- w + u, s'  with  u, s' = update(g, s, w)

Each leaf has an optimizer state of its own, so that where it lives does not matter.
`check_leafwise` refuses transformations that look at several leaves together.

Source: Li et al., "Scaling distributed machine learning with the parameter server",
OSDI 2014; synchronous.

Cost: the optimizer's state, and n gradients of each leaf until the last has come.
"""

from threading import Condition
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.testbed.message import TransferError


class Shard:
    """Leaves of one server, read and updated by the threads of its workers."""

    def __init__(
        self,
        leaves: dict[str, np.ndarray],
        optimizer: optax.GradientTransformation | None,
        *,
        workers: int,
        wait: float,
    ):
        self._leaves = dict(leaves)
        self._workers, self._wait = workers, wait
        self._changed = Condition()
        self._versions = dict.fromkeys(leaves, 0)
        self._gradients: dict[str, dict[int, np.ndarray]] = {n: {} for n in leaves}
        self._states: dict[str, Any] = {}
        if optimizer is not None:
            self._update = jax.jit(_mean_update(optimizer))
            for name, leaf in leaves.items():  # compiled before anybody waits for it
                self._states[name] = optimizer.init(jnp.asarray(leaf))
                zeros = [np.zeros_like(leaf)] * workers
                jax.block_until_ready(self._update(zeros, self._states[name], leaf))

    def shape(self, name: str) -> tuple[tuple[int, ...], Any]:
        """Shape and dtype of a leaf.

        Raises:
          ValueError: it does not live here.
        """
        if name not in self._leaves:
            raise ValueError(f"leaf {name!r} does not live here")
        return self._leaves[name].shape, self._leaves[name].dtype

    def read(self, name: str, version: int) -> np.ndarray:
        """A leaf after so many updates.

        Raises:
          ValueError: it does not live here.
          TransferError: the update did not come in time.
        """
        self.shape(name)
        with self._changed:
            came = self._changed.wait_for(
                lambda: self._versions[name] >= version, self._wait
            )
            if not came:
                missing = set(range(self._workers)) - set(self._gradients[name])
                raise TransferError(
                    f"update {version} of {name!r} has not come in {self._wait} s: "
                    f"gradients of workers {sorted(missing)} are missing"
                )
            return self._leaves[name]

    def add(self, worker: int, name: str, gradient: np.ndarray) -> None:
        """Takes a gradient; the last one of a leaf updates it.

        Raises:
          ValueError: nothing may be pushed, or this worker has already.
        """
        if name not in self._states:
            raise ValueError(f"{name!r} is not trained: give optimizer=")
        with self._changed:
            gradients = self._gradients[name]
            if worker in gradients:
                raise ValueError(f"worker {worker} pushed {name!r} twice in one step")
            gradients[worker] = gradient
            if len(gradients) < self._workers:
                return
        inputs = [gradients[i] for i in range(self._workers)]
        leaf, state = self._update(inputs, self._states[name], self._leaves[name])
        with self._changed:
            self._leaves[name], self._states[name] = np.asarray(leaf), state
            self._gradients[name] = {}
            self._versions[name] += 1
            self._changed.notify_all()

    def values(self) -> dict[str, np.ndarray]:
        """Every leaf as it is now, by name."""
        with self._changed:
            return dict(self._leaves)


def _mean_update(optimizer: optax.GradientTransformation) -> Any:
    def update(gradients: list[jax.Array], state: Any, leaf: jax.Array) -> Any:
        mean = sum(gradients[1:], gradients[0]) / len(gradients)
        updates, state = optimizer.update(mean.astype(leaf.dtype), state, leaf)
        return optax.apply_updates(leaf, updates), state

    return update

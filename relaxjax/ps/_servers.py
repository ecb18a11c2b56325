"""Where servers are: which slice of every leaf a worker holds, and who exchanges what.

Source: Li et al. 2014 (sharded servers with replicas); each leaf is cut as Rajbhandari
et al. 2020 (ZeRO) do, so that every server has the same share of every leaf, and no
server is busier than another.

With n workers on an axis and k servers, k dividing n, worker i is server i mod k:

    slices of x[d]:   k rows of c = ceil(d / k) elements, the last filled with zeros
    pull:             all-gather among the k workers of a group, i // k
    push:             all-to-all in the group, the rows added in float32 at least;
                      then summed over the n / k workers that are the same server

Where there are more axes, the servers are on the last one, and each is the same on all
others.

Cost: a pull sends (k - 1) c elements from each worker; a push as many, and where
m = n / k > 1 the 2 (m - 1) ceil(c / m) of an all-reduce, in float32 at least.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, axes_of, axis_size, on_devices, tracks_vma
from relaxjax._core._checks import require_whole
from relaxjax._core._dtypes import wide
from relaxjax.collectives import distribute, from_wire, gather, send, to_wire


class Servers(NamedTuple):
    """The servers on an axis.

    Attributes:
      name: of the axis that they are on.
      others: further axes of workers, on which each server is the same.
      workers: number of workers on the axis.
      number: number of servers k.
    """

    name: str
    others: tuple[str, ...]
    workers: int
    number: int

    def rows(self, x: jax.Array) -> jax.Array:
        """[k, c]: the slices of x[...]."""
        flat = lax.reshape(x, (x.size,))
        return jnp.pad(flat, (0, -x.size % self.number)).reshape(self.number, -1)

    def own(self, x: jax.Array) -> jax.Array:
        """[c]: the slice of x[...] that is this worker's as a server."""
        mine = lax.axis_index(self.name) % self.number
        return lax.dynamic_index_in_dim(self.rows(x), mine, keepdims=False)

    def pull(self, own: jax.Array) -> jax.Array:
        """[k, c]: all slices, of which each server gives its own."""
        if self.number == self.workers or tracks_vma(self.name):
            # Of a group alone, the types would not know that all groups have the same.
            return gather(own, self.name)[: self.number]
        if on_devices(self.name):
            bits = lax.all_gather(
                to_wire(own), self.name, axis_index_groups=self._groups()
            )
            return from_wire(bits, own.dtype)
        rows = [own] * self.number
        return _turned(self._round(rows), -self._place())

    def push(self, rows: jax.Array) -> jax.Array:
        """[c]: the mean over all workers of the slice [k, c] that is this server's."""
        total = self._swapped(rows).astype(wide(rows.dtype)).sum(axis=0)
        total = self._over_replicas(total)
        for name in self.others:
            total = lax.psum(total, name)
        n = self.workers * math.prod(lax.axis_size(name) for name in self.others)
        return (total / n).astype(rows.dtype)

    def _swapped(self, rows: jax.Array) -> jax.Array:
        """[k, c]: what each of the group has for this server."""
        if self.number == self.workers:
            return from_wire(distribute(to_wire(rows), self.name), rows.dtype)
        if on_devices(self.name):
            bits = lax.all_to_all(
                to_wire(rows), self.name, 0, 0, axis_index_groups=self._groups()
            )
            return from_wire(bits, rows.dtype)
        turned = _turned(rows, self._place())  # its own first
        return _turned(self._round(list(turned)), -self._place())

    def _over_replicas(self, x: jax.Array) -> jax.Array:
        """The sum over the workers that are the same server."""
        k, n = self.number, self.workers
        if k == n:
            return x
        if k == 1:
            return lax.psum(x, self.name)
        if on_devices(self.name) and not tracks_vma(self.name):  # JAX cannot type it
            same = [list(range(s, n, k)) for s in range(k)]
            return lax.psum(x, self.name, axis_index_groups=same)
        place = lax.axis_index(self.name) // k
        shifts = range(0, n, k)
        found = [
            send(x, self.name, [(i, (i + s) % n) for i in range(n)]) for s in shifts
        ]
        return _turned(jnp.stack(found[:1] + found[:0:-1]), -place).sum(axis=0)

    def _round(self, rows: list[jax.Array]) -> jax.Array:
        """Row s goes to the s-th after this one in the group; by who sent, likewise."""
        k, n = self.number, self.workers
        back = [
            send(row, self.name, [(i, i // k * k + (i + s) % k) for i in range(n)])
            for s, row in enumerate(rows)
        ]
        return jnp.stack(back[:1] + back[:0:-1])

    def _place(self) -> jax.Array:
        return lax.axis_index(self.name) % self.number

    def _groups(self) -> list[list[int]]:
        k = self.number
        return [list(range(i, i + k)) for i in range(0, self.workers, k)]


def servers_of(
    caller: str, axis_name: AxisName, number: int | None, leaves: int | None
) -> Servers:
    """The servers on the axis around us.

    Args:
      caller: who is named in errors.
      axis_name: of the workers; of a tuple, the last axis has the servers.
      number: k; None: every worker of that axis is one.
      leaves: number of leaves that are served; None: it has been checked.

    Raises:
      NameError: outside the axis.
      ValueError: as of `number_of_servers`.
    """
    *others, name = axes_of(axis_name)
    for other in others:
        axis_size(other, caller)
    workers = axis_size(name, caller)
    number = number_of_servers(caller, name, number, workers, leaves)
    return Servers(name, tuple(others), workers, number)


def number_of_servers(
    caller: str, name: str, number: int | None, workers: int, leaves: int | None
) -> int:
    """The number, if so many workers can be so many servers of so many leaves.

    Raises:
      ValueError: it is not, or more than there are leaves, or does not divide the
        number of workers.
    """
    if number is None:
        return workers
    if leaves is not None and number > leaves:
        raise ValueError(
            f"{caller}: servers={number} and the params have {leaves} leaves: there "
            "must be a leaf for each server at least; give at most "
            f"servers={max(1, leaves)}, or None for one at every worker"
        )
    if workers % number:
        fitting = [k for k in range(1, workers + 1) if workers % k == 0]
        raise ValueError(
            f"{caller}: servers={number} must divide the {workers} workers of axis "
            f"{name!r}, as every worker is part of one: {', '.join(map(str, fitting))}"
        )
    return number


def check_servers(caller: str, number: Any) -> None:
    """Refuses what is no number of servers, before any axis is known."""
    if number is not None:
        require_whole(caller, "servers", number)


def _turned(rows: jax.Array, by: jax.Array) -> jax.Array:
    """The rows, that at `by` first."""
    return jnp.roll(rows, -by, axis=0)

"""The servers on an axis: which slice of every leaf a worker holds, and who sends what.

Source: Li et al. 2014 (sharded servers with replicas). Each leaf is cut as in ZeRO
(Rajbhandari et al. 2020), so that every server has the same share of every leaf, and no
server is busier than another.

With n workers on an axis and k servers, k dividing n, worker i is server i mod k:

    slices of x[d]:   k rows of c = ceil(d / k) elements, the last filled with zeros
    pull:             all-gather among the k workers of a group, i // k
    push:             all-to-all in the group, the rows added in float32 at least;
                      then summed over the n / k workers that are the same server

With several axes, the servers are on the last one, and each is the same on all others.

Cost: a pull sends (k - 1) c elements from each worker; a push as many, and if
m = n / k > 1 the 2 (m - 1) ceil(c / m) of an all-reduce, in float32 at least.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from relaxjax._core._axis import AxisName, axes_of, axis_size, on_devices, tracks_vma
from relaxjax._core._tree import wide
from relaxjax.collectives import distribute, from_wire, gather, send, to_wire
from relaxjax.ps._refusals import number_of_servers


class Servers(NamedTuple):
    """The servers on an axis.

    Attributes:
      name: the axis that they are on.
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
        """[c]: the slice of x[...] that this worker holds as a server."""
        return lax.dynamic_index_in_dim(self.rows(x), self._place(), keepdims=False)

    def pull(self, own: jax.Array) -> jax.Array:
        """[k, c]: all slices; each server gives its own."""
        apart = self.number < self.workers and on_devices(self.name)
        if not apart or tracks_vma(self.name):
            # In a group alone, the types would not know that all groups have the same.
            return gather(own, self.name)[: self.number]
        bits = lax.all_gather(to_wire(own), self.name, axis_index_groups=self._groups())
        return from_wire(bits, own.dtype)

    def push(self, rows: jax.Array, *, divided: bool = False) -> jax.Array:
        """[c]: the mean over all workers of this server's row of [k, c].

        Rows that are `divided` by the number of workers already are added up.
        """
        total = self._swapped(rows).astype(wide(rows.dtype)).sum(axis=0)
        total = self._over_replicas(total)
        for name in self.others:
            total = lax.psum(total, name)
        n = self.workers * math.prod(lax.axis_size(name) for name in self.others)
        return (total if divided else total / n).astype(rows.dtype)

    def _swapped(self, rows: jax.Array) -> jax.Array:
        """[k, c]: what each worker of the group has for this server."""
        if self.number == self.workers:
            return distribute(rows, self.name)
        if on_devices(self.name):
            bits = lax.all_to_all(
                to_wire(rows), self.name, 0, 0, axis_index_groups=self._groups()
            )
            return from_wire(bits, rows.dtype)
        group = lax.axis_index(self.name) // self.number * self.number
        every = lax.all_gather(rows, self.name)
        each = lax.dynamic_slice_in_dim(every, group, self.number)
        return lax.dynamic_index_in_dim(each, self._place(), axis=1, keepdims=False)

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
        each = [
            send(x, self.name, [(i, (i + s) % n) for i in range(n)]) for s in shifts
        ]
        in_order = jnp.roll(jnp.stack(each[:1] + each[:0:-1]), place, axis=0)
        return in_order.sum(axis=0)

    def _place(self) -> jax.Array:
        return lax.axis_index(self.name) % self.number

    def _groups(self) -> list[list[int]]:
        k = self.number
        return [list(range(i, i + k)) for i in range(0, self.workers, k)]


def servers_of(
    caller: str, axis_name: AxisName, number: int | None, leaves: int | None
) -> Servers:
    """The servers on the axis around us; see `number_of_servers`."""
    *others, name = axes_of(axis_name)
    for other in others:
        axis_size(other, caller)
    workers = axis_size(name, caller)
    number = number_of_servers(caller, name, number, workers, leaves)
    return Servers(name, tuple(others), workers, number)

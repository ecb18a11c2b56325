"""What a use of sharded params sends, axis by axis, in closed form.

With n = n_1 .. n_k workers on the axes, outermost first, a leaf of d elements in slices
of c = ceil(d / n), P(c) the bytes of its message as `weights=` has it, and Q of
`gradients=`; on axis a, n_b the workers on the axes outside of it:

    gather    (n_a - 1) n_b P(c)            once, or twice if the backward pass gathers
    scatter   (n_a - 1) Q(n_b c)            the slices behind an axis travel together;
                                            on outer axes Q is of `across=`, if given

`secondary` spares the second gather on all axes but the innermost. An empty leaf sends
nothing.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from relaxjax._core._axis import AxisName
from relaxjax.compression import Compressor, payload_bytes
from relaxjax.fsdp._choices import Choices
from relaxjax.fsdp._gathered import Gathered
from relaxjax.workers import workers_of


class SentBytes(NamedTuple):
    """Bytes that each worker sends in one step.

    Attributes:
      by_axis: bytes by the name of the axis that they travel on, outermost first.
    """

    by_axis: dict[str, int]

    @property
    def total(self) -> int:
        """Over all axes."""
        return sum(self.by_axis.values())


def sent_bytes(
    loss: Gathered, params: Any, mesh: Any, *, axis_name: AxisName | None = None
) -> SentBytes:
    """Bytes that each worker sends for one loss and its gradient.

    Args:
      loss: what `relaxjax.fsdp.gathered` returned.
      params: a pytree of arrays or `jax.ShapeDtypeStruct`, whole, as for one device. Of
        layers, those of one: a scan sends as many times that.
      mesh: a mesh, or `relaxjax.emulate(...)`.
      axis_name: the data-parallel axes; None means all axes of the mesh.

    Returns:
      A `SentBytes`; `relaxjax.compiled_wire_bytes` reads its `total` from the program.

    Raises:
      TypeError: `mesh` is not a mesh.
      ValueError: the mesh has no axis that params are sharded over.

    Example:
      >>> import jax.numpy as jnp, relaxjax
      >>> from relaxjax import compression, fsdp
      >>> mesh = relaxjax.emulate({"host": 2, "device": 4})
      >>> loss = fsdp.gathered(lambda w, x: w @ x, ("host", "device"),
      ...     weights=compression.quantize(8), secondary="device")
      >>> fsdp.sent_bytes(loss, jnp.zeros((64, 16)), mesh).by_axis
      {'host': 644, 'device': 4656}
    """
    workers = workers_of(mesh, axis_name, "fsdp.sent_bytes")
    chosen = loss.choices
    missing = [name for name in chosen.axes if name not in workers.mesh.shape]
    if missing:
        raise ValueError(
            f"fsdp.sent_bytes: the mesh has no axis {missing[0]!r}, which the params "
            f"are sharded over; its axes are {', '.join(workers.mesh.axis_names)}"
        )
    sizes = {name: workers.mesh.shape[name] for name in chosen.axes}
    leaves = [jax.typeof(x) for x in jax.tree.leaves(params)]
    each = [_of_leaf(chosen, sizes, x) for x in leaves if x.size]
    return SentBytes({name: sum(sent[name] for sent in each) for name in sizes})


def _of_leaf(chosen: Choices, sizes: Mapping[str, int], leaf: Any) -> dict[str, int]:
    c = -(-leaf.size // math.prod(sizes.values()))
    *_, inner = sizes
    outside, sent = 1, {}
    for name, n in sizes.items():
        again = chosen.reshard and (name == inner or chosen.secondary is None)
        gather = outside * _message(chosen.weights, c, leaf.dtype)
        code = chosen.gradients if name == inner else chosen.across or chosen.gradients
        scatter = _message(code, outside * c, leaf.dtype)
        sent[name] = (n - 1) * ((2 if again else 1) * gather + scatter)
        outside *= n
    return sent


def _message(compressor: Compressor | None, size: int, dtype: jnp.dtype) -> int:
    if compressor is None:
        return size * dtype.itemsize
    return payload_bytes(compressor, jax.ShapeDtypeStruct((size,), jnp.float32))

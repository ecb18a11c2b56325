"""Push-sum: gossip over directed graphs, of which only the columns sum to 1.

Sources: Kempe et al. 2003, Nedic and Olshevsky 2016, Assran et al. 2019 (SGP). A worker
gives away shares of what it has, and what it has is counted: with shares P, a mass w_i
(1 at the start), the params z_i = x_i / w_i and the optimizer's update u_i at z_i:

    x_i <- sum_j P_ij (w_j z_j + u_j)
    w_i <- sum_j P_ij w_j
    z_i <- x_i / w_i

The sums of x and of w over the workers stay. Where rows sum to 1 as well, w is 1 and
this is `gossip`.

Cost: of `gossip`, and 4 bytes. State: a number.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import AxisName
from relaxjax._core._merge_rules import MEAN
from relaxjax.decentralized._round import as_float32, gossip_spec, gossip_transformation
from relaxjax.topology import Topology

_CALLER = "push_sum"


class PushSumState(NamedTuple):
    """What `push_sum` keeps.

    Attributes:
      mass: w_i, float32.
    """

    mass: Annotated[jax.Array, MEAN]


def push_sum(
    axis_name: AxisName,
    topology: Topology,
    *,
    every: int = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Averages models over a graph in which not all that is given comes back.

    Put it last in the chain, as `gossip`. The params are z.

    Args:
      axis_name: the axis, or a tuple (outer, inner), as of `gossip`.
      topology: whose columns sum to 1, such as
        `relaxjax.topology.from_column_stochastic(shares)`; its rounds take turns.
      every: steps that a round takes; all but the last send nothing.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.

    Returns:
      A gradient transformation, as of `gossip`.

    Raises:
      TypeError: as of `gossip`.
      ValueError: as of `gossip`, for columns alone.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> shares = [[0.5, 0.0, 0.5], [0.25, 0.5, 0.0], [0.25, 0.5, 0.5]]
      >>> graph = relaxjax.topology.from_column_stochastic(shares)
      >>> tx = relaxjax.push_sum("data", graph)
      >>> def mean(z):
      ...     state = tx.init(z)
      ...     for _ in range(30):
      ...         updates, state = tx.update(jnp.zeros(()), state, z)
      ...         z = z + updates
      ...     return z
      >>> values = jnp.array([1.0, 2.0, 6.0])
      >>> print(jax.jit(jax.vmap(mean, axis_name="data"))(values).round(4))
      [3. 3. 3.]
    """
    mixing = gossip_spec(
        _CALLER,
        axis_name,
        topology,
        every,
        bucket_bytes,
        None if specs is None else (specs, P()),
        doubly=False,
    )

    def rule(updates: Any, params: Any, kept: Any, step: jax.Array) -> Any:
        z, u = as_float32(mixing, params, updates)
        w = kept.mass
        half = jax.tree.map(lambda z, u: w * z + u, z, u)
        change, more = mixing.change((half, w), step)
        w = w + more
        x = jax.tree.map(jnp.add, half, change)
        moved = jax.tree.map(lambda x, z: x / w.astype(x.dtype) - z, x, z)
        return moved, PushSumState(w)

    return gossip_transformation(
        mixing, lambda _: PushSumState(jnp.ones((), jnp.float32)), rule
    )

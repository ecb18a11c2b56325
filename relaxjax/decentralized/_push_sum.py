"""Push-sum: gossip over directed graphs whose weights need only columns that sum to 1.

Sources: Kempe et al. 2003, Nedic and Olshevsky 2016, Assran et al. 2019 (SGP). A worker
gives away shares of what it has, and what it has is counted: with shares P, a mass w_i
(1 at the start), the params z_i = x_i / w_i and the optimizer's update u_i at z_i:

    x_i <- sum_j P_ij (w_j z_j + u_j)
    w_i <- sum_j P_ij w_j
    z_i <- x_i / w_i

The sums of x and of w over the workers stay. Where rows sum to 1 as well, w is 1 and
this is `gossip`.

Cost: that of `gossip`, and 4 bytes; 8 with params in doubles. State: a number.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec as P

from relaxjax._core._axis import AxisName
from relaxjax._core._merge_rules import MEAN
from relaxjax._core._tree import widened
from relaxjax.decentralized._round import gossip_transformation
from relaxjax.decentralized._spec import gossip_spec
from relaxjax.periods import Period
from relaxjax.topology import Topology

_CALLER = "push_sum"


class PushSumState(NamedTuple):
    """State of `push_sum`.

    Attributes:
      mass: w_i, float32; float64 with params in doubles.
    """

    mass: Annotated[jax.Array, MEAN]


def push_sum(
    axis_name: AxisName,
    topology: Topology,
    *,
    every: Period = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Averages models over a graph in which not all that is given comes back.

    Put it last in the chain, like `gossip`. The params are z.

    Args:
      axis_name: the axis, or a tuple (outer, inner), as in `gossip`.
      topology: a topology whose columns sum to 1, such as
        `relaxjax.topology.from_column_stochastic(shares)`; its rounds take turns.
      every: the number of steps that a round takes; only the last one sends. Or a
        schedule of `relaxjax.periods`, which is asked after each round.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.

    Returns:
      A gradient transformation, as in `gossip`.

    Raises:
      TypeError: what `gossip` refuses.
      ValueError: what `gossip` refuses; rows need not sum to 1.
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
    both = None if specs is None else (specs, P())
    spec = gossip_spec(
        _CALLER, axis_name, topology, every, bucket_bytes, both, doubly=False
    )

    def rule(updates: Any, params: Any, memory: Any, step: jax.Array) -> Any:
        z, u = spec.as_float32(params, updates)
        w = memory.mass
        half = jax.tree.map(lambda z, u: w * z + u, z, u)
        change, w_change = spec.change((half, w), step)
        w = w + w_change
        x = jax.tree.map(jnp.add, half, change)
        moved = jax.tree.map(lambda x, z: x / w.astype(x.dtype) - z, x, z)
        return moved, PushSumState(w)

    def start(params: optax.Params) -> PushSumState:
        # As wide as the params: z would be a ratio with another rounding.
        kinds = [jnp.finfo(x.dtype).dtype for x in jax.tree.leaves(widened(params))]
        return PushSumState(jnp.ones((), jnp.result_type(jnp.float32, *kinds)))

    return gossip_transformation(spec, start, rule)

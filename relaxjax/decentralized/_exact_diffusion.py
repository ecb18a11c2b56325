"""Exact diffusion: gossip without the bias of data that differ between workers.

Sources: Yuan et al. 2019 (exact diffusion), Tang et al. 2018 (D^2), Li et al. 2019
(NIDS), which are one rule; local steps as in Alghunaim 2024. With symmetric weights W,
the optimizer's update u_i, and c_i = 0 at the start:

    h_i = x_i + u_i + c_i
    x_i = sum_j W_ij h_j
    c_i = c_i + (x_i - h_i) / every

c_i becomes minus the part of u_i in which worker i differs from the mean; the c_i add
up to zero. That is D^2, x <- W (2 x - x' + u - u'), without differences of steps at two
learning rates: when the rate changes, c still fits the old one, and follows.

Disagreement of a mode with eigenvalue l of W evolves by mu^2 = 2 l mu - l, which
shrinks for -1/3 < l < 1. A ring of an even number (l = -1/3) and a hypercube do not
qualify: take relaxjax.topology.lazy of them, (W + I) / 2. With `every` = k, c is added
k times between two rounds, and so a k-th of it each time, which leaves this unchanged;
under a schedule k is the number of steps of the round that ends.

Cost: that of `gossip`. State: c, of the params' size, in float32.
"""

from typing import Annotated, Any, NamedTuple

import jax
import numpy as np
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._merge_rules import MEAN
from relaxjax._core._tree import widened
from relaxjax.decentralized._round import gossip_transformation
from relaxjax.decentralized._spec import gossip_spec
from relaxjax.periods import Period
from relaxjax.topology import Topology

_CALLER = "exact_diffusion"


class ExactDiffusionState(NamedTuple):
    """State of `exact_diffusion`.

    Attributes:
      correction: c_i, float32 where a param is narrower, like the params.
    """

    correction: Annotated[Any, MEAN]


def exact_diffusion(
    axis_name: AxisName,
    topology: Topology,
    *,
    every: Period = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Averages each worker's model with its neighbors', with the bias taken out.

    Put it last in the chain, like `gossip`; best after plain SGD.

    Args:
      axis_name: the axis, or a tuple (outer, inner), as in `gossip`.
      topology: a static, symmetric topology with all eigenvalues above -1/3.
      every: the number of steps that a round takes; only the last one sends. Or a
        schedule of `relaxjax.periods`, which is asked after each round.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.

    Returns:
      A gradient transformation, as in `gossip`.

    Raises:
      TypeError: what `gossip` refuses.
      ValueError: a topology that changes, or is not symmetric, or has an eigenvalue of
        -1/3 or less; what `gossip` refuses.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> from relaxjax import topology
      >>> tx = optax.chain(
      ...     optax.sgd(0.2), relaxjax.exact_diffusion("data", topology.ring(3))
      ... )
      >>> def train(target):  # the minimum of all workers' loss is the mean target
      ...     x = jnp.float32(0)
      ...     state = tx.init(x)
      ...     for _ in range(60):
      ...         updates, state = tx.update(x - target, state, x)
      ...         x = x + updates
      ...     return x
      >>> targets = jnp.array([1.0, 2.0, 6.0])
      >>> print(jax.jit(jax.vmap(train, axis_name="data"))(targets).round(4))
      [3. 3. 3.]
    """
    spec = gossip_spec(_CALLER, axis_name, topology, every, bucket_bytes, specs)
    _check_stable(topology)

    def rule(updates: Any, params: Any, memory: Any, step: jax.Array) -> Any:
        x, u = spec.as_float32(params, updates)
        c, k = memory.correction, spec.rounds.length(step)
        h = jax.tree.map(lambda x, u, c: x + u + c, x, u, c)
        change = spec.change(h, step)
        moved = jax.tree.map(lambda u, c, change: u + c + change, u, c, change)
        c = jax.tree.map(lambda c, change: c + change / k, c, change)
        return moved, ExactDiffusionState(c)

    def start(params: optax.Params) -> ExactDiffusionState:
        return ExactDiffusionState(optax.tree.zeros_like(widened(params)))

    return gossip_transformation(spec, start, rule)


def _check_stable(topology: Topology) -> None:
    if topology.period > 1 or not topology.is_symmetric:
        raise ValueError(
            f"{_CALLER}: the topology {topology.name!r} must be static and symmetric; "
            "for others there is relaxjax.gradient_tracking"
        )
    least = float(np.real(topology.eigenvalues()).min())
    if least <= -1 / 3 + 1e-9:
        raise ValueError(
            f"{_CALLER}: the topology {topology.name!r} of {topology.n} workers has "
            f"the eigenvalue {least:.4f}, and from -1/3 downwards disagreement grows; "
            "use relaxjax.topology.lazy(topology), which is (W + I) / 2"
        )

"""NoLoCo: many local steps, then an outer step with momentum along what peers moved.

Source: Kolehmainen et al. 2025. Worker i has a fast model theta_i and a slow one phi_i,
both its own; W are the weights of the round (in the paper the mean over a random pair:
`relaxjax.topology.random_matching`). After each H-th step, delta_i = 0 at the start:

    Delta_i = theta_i - phi_i
    delta_i = alpha delta_i + beta sum_j W_ij Delta_j
              - gamma (phi_i - sum_j W_ij phi_j)
    phi_i = phi_i + delta_i,  theta_i = phi_i

Both sums are linear, so that one message serves both: z_i = beta Delta_i +
gamma phi_i travels, and delta_i = alpha delta_i + beta Delta_i + sum_j W_ij z_j - z_i.

The mean of the phi_i follows heavy ball along the mean of the Delta_i, whatever the
graph. With the complete graph all workers are equal, and this is DiLoCo with heavy
ball; with alpha = 0 and beta = gamma = 1 it is gossip of the models, every H steps.

Stability: for a pair the paper asks alpha < gamma < 2 + alpha. On a static, symmetric
graph, with l the least eigenvalue of W, disagreement of the phi_i dies out by itself
(Delta = 0) for gamma (1 - l) < 2 (1 + alpha), and grows beyond.

Cost: that of `gossip`, once in H steps; nobody waits for all others, and nothing is
sent in between. State beside the inner optimizer's: phi and delta, each of the params'
size.
"""

from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import is_traced, require_momentum, require_transformation
from relaxjax._core._cond import when
from relaxjax._core._merge_rules import MEAN
from relaxjax._core._tree import wide_copy
from relaxjax._core.traced._marks import whole_method
from relaxjax.decentralized._round import gossip_transformation
from relaxjax.decentralized._spec import gossip_spec
from relaxjax.periods import Period
from relaxjax.topology import Topology

_CALLER = "noloco"


class NoLoCoState(NamedTuple):
    """State of `noloco`.

    Attributes:
      slow: phi_i, float32 where a param is narrower, like the params.
      momentum: delta_i, like phi_i.
    """

    slow: Annotated[Any, MEAN]
    momentum: Annotated[Any, MEAN]


def noloco(
    inner: optax.GradientTransformation,
    axis_name: AxisName,
    topology: Topology,
    sync_every: Period,
    *,
    momentum: float = 0.5,
    outer_learning_rate: float = 0.7,
    pull: float = 1.0,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """DiLoCo without an all-reduce: the outer step is taken with the neighbors.

    Experimental: this may change in any release.

    Use it as the whole optimizer. The models differ: `relaxjax.consensus` gives one,
    `relaxjax.spread` says how far they are apart.

    Args:
      inner: each worker's optimizer, which sees its own gradients; its state goes on.
      axis_name: the axis, or a tuple (outer, inner), as in `gossip`.
      topology: a topology of `relaxjax.topology`, such as `random_matching(8)`; its
        rounds take turns.
      sync_every: H, the number of steps from one outer step to the next, 1 or more; or
        a schedule of `relaxjax.periods`, which is asked after each of them.
      momentum: alpha, in [0, 1).
      outer_learning_rate: beta, the rate of the mean Delta_i.
      pull: gamma, above 0: the share of the way to the neighbors' slow models that an
        outer step takes. The three defaults are ours, not the paper's.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.

    Returns:
      A gradient transformation whose `update` needs `params`: a chain of the inner
      optimizer and of the outer half. Updates come out in float32 where a param is
      narrower.

    Raises:
      TypeError: what `gossip` refuses.
      ValueError: `sync_every < 1`, a momentum outside [0, 1), a pull of 0 or less;
        what `gossip` refuses.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> pairs = relaxjax.topology.one_peer_hypercube(4)
      >>> tx = relaxjax.noloco(
      ...     optax.sgd(1.0), "data", pairs, 1, outer_learning_rate=0.5
      ... )
      >>> def update(gradient):
      ...     x = jnp.float32(0)
      ...     return tx.update(gradient, tx.init(x), x)[0]
      >>> # Half of the mean step of each pair: of -1 and -3, of -2 and -6.
      >>> print(jax.vmap(update, axis_name="data")(jnp.array([1.0, 3.0, 2.0, 6.0])))
      [-1. -1. -2. -2.]
    """
    require_transformation("noloco", "inner", inner)
    spec = gossip_spec(
        _CALLER, axis_name, topology, sync_every, bucket_bytes, specs, name="sync_every"
    )
    require_momentum(_CALLER, momentum)
    if not is_traced(pull) and not pull > 0:
        raise ValueError(
            f"{_CALLER}: pull={pull} must be over 0, or slow models never meet; 1.0 "
            "takes the neighbors' mean"
        )
    alpha, beta, gamma = momentum, outer_learning_rate, pull

    def rule(updates: Any, params: Any, memory: Any, step: jax.Array) -> Any:
        x, u = spec.as_float32(params, updates)
        spec.require(u)

        def meet(before: tuple[Any, NoLoCoState]) -> tuple[Any, NoLoCoState]:
            u, (phi, delta) = before
            ahead = jax.tree.map(lambda x, u, phi: beta * (x + u - phi), x, u, phi)
            z = jax.tree.map(lambda d, phi: d + gamma * phi, ahead, phi)
            change = spec.communicate(z, step)
            delta = jax.tree.map(
                lambda old, d, c: alpha * old + d + c, delta, ahead, change
            )
            phi = jax.tree.map(jnp.add, phi, delta)
            return optax.tree.sub(phi, x), NoLoCoState(phi, delta)

        return when(spec.is_round_due(step), meet, (u, memory))

    def start(params: optax.Params) -> NoLoCoState:
        slow = wide_copy(params)
        return NoLoCoState(slow, optax.tree.zeros_like(slow))

    outer_half = gossip_transformation(spec, start, rule)
    return whole_method(_CALLER, inner, outer_half)

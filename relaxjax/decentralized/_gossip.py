"""Gossip: after its own step, each worker takes the mean with its neighbors.

Source: decentralized SGD, adapt then combine (Lian et al. 2017; Chen and Sayed 2012).
With weights W of a topology and the optimizer's update u_i of worker i:

    x_i <- sum_j W_ij (x_j + u_j)

The workers' mean moves by the mean update, to rounding. Where the workers' data differ,
a constant learning rate leaves a bias (`exact_diffusion` and `gradient_tracking` do
not). With the complete graph and SGD this is an all-reduce of gradients.

Cost: 4 d bytes to each neighbor: on a ring 8 d, with one peer a round 4 d, where a ring
all-reduce sends 8 d (n - 1) / n. Nobody waits for workers beyond the neighbors. No
state but a counter.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax.compression import Compressor
from relaxjax.decentralized._choco import choco
from relaxjax.decentralized._round import gossip_transformation
from relaxjax.decentralized._spec import gossip_spec
from relaxjax.periods import Period
from relaxjax.topology import Topology


def gossip(
    axis_name: AxisName,
    topology: Topology,
    *,
    compressor: Compressor | None = None,
    consensus_step_size: float = 0.4,
    every: Period = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Averages each worker's model with its neighbors', after its own step.

    Put it last in the chain, after the optimizer, which then sees each worker's own
    gradient. The models differ: `relaxjax.consensus` gives one, `relaxjax.spread` says
    how far they are apart.

    Args:
      axis_name: the axis, or a tuple (outer, inner): the topology is over the outer
        one, and inside the inner one all take the mean (without a compressor).
      topology: a topology of `relaxjax.topology` for as many workers; its rounds take
        turns.
      compressor: the compressor of the change since the last round, without feedback
        (CHOCO-SGD; the topology has one round). None sends the models themselves.
      consensus_step_size: gamma, in (0, 1]: with a compressor, the share of the
        difference to the neighbors' copies that a round makes up; the more the
        compressor loses, the smaller.
      every: the number of steps that a round takes; only the last one sends. Or a
        schedule of `relaxjax.periods`, which is asked after each round.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.
      seed: the seed of random compressors.

    Returns:
      A gradient transformation whose `update` needs the params. Updates come out in
      float32 where a param is narrower (`optax.apply_updates` takes them so).

    Raises:
      TypeError: `axis_name` is not one or two axes (with a compressor: one),
        `topology` is not a topology.
      ValueError: `every < 1`, weights that do not keep the mean; a compressor with
        feedback or over several rounds, a gamma outside (0, 1]; in `update`: another
        number of workers, another tree than `init` saw, no params, or a `weight`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> ring = relaxjax.topology.ring(3)
      >>> tx = optax.chain(optax.sgd(1.0), relaxjax.gossip("data", ring))
      >>> update = lambda g: tx.update(g, tx.init(g), jnp.zeros(()))[0]
      >>> print(jax.vmap(update, axis_name="data")(jnp.array([1.0, 2.0, 6.0])))
      [-3. -3. -3.]
    """
    spec = gossip_spec("gossip", axis_name, topology, every, bucket_bytes, specs)
    if compressor is not None:
        return choco(spec, compressor, consensus_step_size, seed)

    def rule(updates: Any, params: Any, memory: Any, step: jax.Array) -> Any:
        x, u = spec.as_float32(params, updates)
        half = jax.tree.map(jnp.add, x, u)
        return jax.tree.map(jnp.add, u, spec.change(half, step)), memory

    return gossip_transformation(spec, lambda _: (), rule)


def combine_then_adapt(
    axis_name: AxisName,
    topology: Topology,
    *,
    every: Period = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Averages each worker's model with its neighbors' while the gradient is computed.

    Decentralized SGD in the other order (combine then adapt, Lian et al. 2017):

        x_i <- sum_j W_ij x_j + u_i

    What travels does not depend on the gradient, so that it can hide behind it. The
    models are a step farther apart than with `gossip`, and the bias is larger. Its
    place in the chain, arguments, result and errors are those of `gossip`.

    Example:
      >>> import jax, jax.numpy as jnp, optax, relaxjax
      >>> ring = relaxjax.topology.ring(3)
      >>> tx = optax.chain(optax.sgd(1.0), relaxjax.combine_then_adapt("data", ring))
      >>> update = lambda x: tx.update(jnp.ones(()), tx.init(x), x)[0]
      >>> print(jax.vmap(update, axis_name="data")(jnp.array([0.0, 0.0, 6.0])))
      [ 1.  1. -5.]
    """
    spec = gossip_spec(
        "combine_then_adapt", axis_name, topology, every, bucket_bytes, specs
    )

    def rule(updates: Any, params: Any, memory: Any, step: jax.Array) -> Any:
        x, u = spec.as_float32(params, updates)
        return jax.tree.map(jnp.add, u, spec.change(x, step)), memory

    return gossip_transformation(spec, lambda _: (), rule)

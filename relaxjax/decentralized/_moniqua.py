"""Moniqua: neighbors are near, so that a model's remainder is all they need.

Source: Lu and De Sa 2020 (Moniqua), algorithm 1. Models differ by less than theta in
every element. With b bits, delta = 1 / 2^(b + 1) and B = 2 theta / (1 - 2 delta), the
remainder of x on division by B is sent, rounded to the middle of one of 2^b parts:

    q_i = Q(x_i / B mod 1)                        (sent to the neighbors; |Q(r) - r| <=
    x^_j = x_i + ((B q_j - x_i) mod B)             delta, mod B in [-B / 2, B / 2))
    x_i = x_i + sum_j W_ij (x^_j - x^_i) + u_i    (x^_i: its own, likewise)

    |x^_j - x_j| <= delta B;  the mean model moves by the mean update

The error stays that large, however near the models are, and where they differ by theta
or more, x^ is wrong by a multiple of B, unseen: theta should be little more than what a
few steps move an element by.

Cost: b d / 8 bytes to each neighbor, and no state at all.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax._core._checks import is_traced, require_known
from relaxjax.compression import Compressor, Law, pack, unpack
from relaxjax.decentralized._coded_round import coded_round
from relaxjax.decentralized._round import gossip_transformation
from relaxjax.decentralized._spec import gossip_spec
from relaxjax.periods import Period
from relaxjax.topology import Topology

_CALLER = "moniqua"
_WIDTHS = (1, 2, 4, 8)


def moniqua(
    axis_name: AxisName,
    topology: Topology,
    theta: float,
    *,
    bits: int = 8,
    every: Period = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Gossip in codes without any state, for models that stay near each other.

    Experimental: this may change in any release.

    Put it last in the chain, like `gossip`. It combines the models as they were before
    the optimizer's update, as `combine_then_adapt` does.

    Args:
      axis_name: the workers' axis.
      topology: a topology of one round.
      theta: a bound, above 0, on how far two neighbors' models differ in any element.
      bits: the width of a code: 1, 2, 4 or 8.
      every: the number of steps that a round takes; only the last one sends. Or a
        schedule of `relaxjax.periods`, which is asked after each round.
      bucket_bytes: see `relaxjax.all_reduce`.
      specs: see `relaxjax.all_reduce`.

    Returns:
      A gradient transformation, as in `gossip`.

    Raises:
      TypeError: what `gossip` refuses.
      ValueError: theta is not above 0, other bits, a topology of several rounds; what
        `gossip` refuses.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.moniqua("data", relaxjax.topology.ring(3), theta=0.1)
      >>> update = lambda x: x + tx.update(0 * x, tx.init(x), x)[0]
      >>> x = jnp.array([7.01, 7.02, 7.06])
      >>> print(jax.vmap(update, axis_name="data")(x).round(3))
      [7.03 7.03 7.03]
    """
    spec = gossip_spec(_CALLER, axis_name, topology, every, bucket_bytes, specs)
    if not is_traced(theta) and not theta > 0:
        raise ValueError(
            f"{_CALLER}: theta={theta} must be over 0: more than neighbors' models "
            "differ by, in any element"
        )
    require_known(_CALLER, "bits", bits)
    if bits not in _WIDTHS:
        raise ValueError(f"{_CALLER}: bits={bits!r} must be one of {_WIDTHS}")
    modulus = 2 * theta / (1 - 2.0**-bits)
    coded = coded_round(spec, _remainders(modulus, bits))

    def start(params: optax.Params) -> Any:
        coded.require_codable(params)
        return ()

    def rule(updates: Any, params: Any, memory: Any, step: jax.Array) -> Any:
        x, u = spec.as_float32(params, updates)
        q, _ = coded.exchange_encoded(x, (), step)
        near = [
            jax.tree.map(lambda x, q: x + _centered(q - x, modulus), x, remainders)
            for remainders in q
        ]
        return jax.tree.map(jnp.add, u, coded.consensus_step(near)), memory

    return gossip_transformation(spec, start, rule)


def _centered(x: jax.Array, modulus: float) -> jax.Array:
    """The remainder of x on division by B, in [-B / 2, B / 2)."""
    return x - modulus * jnp.floor(x / modulus + 0.5)


def _remainders(modulus: float, bits: int) -> Compressor:
    """B Q(x / B mod 1), in [0, B)."""
    parts = 2**bits

    def compress(x, noise):
        del noise
        share = x / modulus
        share = share - jnp.floor(share)
        codes = jnp.clip(jnp.floor(share * parts), 0, parts - 1).astype(jnp.uint8)
        return pack(codes, bits)

    def decompress(payload, size, noise):
        del noise
        codes = unpack(payload, bits, size).astype(jnp.float32)
        return (codes + 0.5) * (modulus / parts)

    # It is not a contraction and need not be: what is lost does not come back.
    return Compressor("remainder", compress, decompress, Law(delta=lambda d: 0.0))

"""Moniqua: neighbours are near, so that a model's remainder is all they need.

Source: Lu and De Sa 2020 (Moniqua), algorithm 1. Models differ by less than theta in
every element. With b bits, delta = 1 / 2^(b + 1) and B = 2 theta / (1 - 2 delta), the
remainder of x on division by B is sent, rounded to the middle of one of 2^b parts:

    q_i = Q(x_i / B mod 1)                        (sent to the neighbours; |Q(r) - r| <=
    x^_j = x_i + ((B q_j - x_i) mod B)             delta, mod B in [-B / 2, B / 2))
    x_i = x_i + sum_j W_ij (x^_j - x^_i) + u_i    (x^_i: its own, likewise)

    |x^_j - x_j| <= delta B;  the mean model moves by the mean update

The error stays that large, however near the models are, and where they differ by theta
or more, x^ is wrong by a multiple of B, unseen: theta is to be little more than what a
few steps move an element by.

Cost: b d / 8 bytes to each neighbour, and no state at all.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from relaxjax._core._axis import AxisName
from relaxjax.compression import Compressor, Law, pack, unpack
from relaxjax.decentralized._coded_round import (
    checked_codec,
    consensus_step,
    exchange_encoded,
    require_codable,
)
from relaxjax.decentralized._round import as_float32, gossip_spec, gossip_transformation
from relaxjax.topology import Topology

_CALLER = "moniqua"
_WIDTHS = (1, 2, 4, 8)


def moniqua(
    axis_name: AxisName,
    topology: Topology,
    theta: float,
    *,
    bits: int = 8,
    every: int = 1,
    bucket_bytes: int = 8 * 2**20,
    specs: Any = None,
) -> optax.GradientTransformationExtraArgs:
    """Gossip in codes without any state, for models that stay near each other.

    Put it last in the chain, as `gossip`. It combines the models as they were before
    the optimizer's update, as `combine_then_adapt` does.

    Args:
      axis_name: the workers' axis.
      topology: of one round.
      theta: more than any two neighbours' models differ by in an element, over 0.
      bits: of a code: 1, 2, 4 or 8.
      every: steps that a round takes; all but the last send nothing.
      bucket_bytes: as of `relaxjax.all_reduce`.
      specs: as of `relaxjax.all_reduce`.

    Returns:
      A gradient transformation, as of `gossip`.

    Raises:
      TypeError: as of `gossip`.
      ValueError: theta is not over 0, other bits, a topology of several rounds; else as
        of `gossip`.
      NameError: `update` outside the axis.

    Example:
      >>> import jax, jax.numpy as jnp, relaxjax
      >>> tx = relaxjax.moniqua("data", relaxjax.topology.ring(3), theta=0.1)
      >>> update = lambda x: x + tx.update(0 * x, tx.init(x), x)[0]
      >>> x = jnp.array([7.01, 7.02, 7.06])
      >>> print(jax.vmap(update, axis_name="data")(x).round(3))
      [7.03 7.03 7.03]
    """
    mixing = gossip_spec(_CALLER, axis_name, topology, every, bucket_bytes, specs)
    _check(theta, bits)
    modulus = 2 * theta / (1 - 2.0**-bits)
    codec = checked_codec(mixing, _remainders(modulus, bits))

    def start(params: optax.Params) -> Any:
        require_codable(mixing, codec, params)
        return ()

    def rule(updates: Any, params: Any, kept: Any, step: jax.Array) -> Any:
        x, u = as_float32(mixing, params, updates)
        q, _ = exchange_encoded(mixing, codec, x, (), step)
        near = [
            jax.tree.map(lambda x, q: x + _centred(q - x, modulus), x, heard)
            for heard in q
        ]
        return jax.tree.map(jnp.add, u, consensus_step(mixing, near)), kept

    return gossip_transformation(mixing, start, rule)


def _centred(x: jax.Array, modulus: float) -> jax.Array:
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

    # No contraction, and none is needed: what is lost does not come back.
    return Compressor("remainder", compress, decompress, Law(delta=lambda d: 0.0))


def _check(theta: float, bits: int) -> None:
    if not theta > 0:
        raise ValueError(
            f"{_CALLER}: theta={theta} must be over 0: more than neighbours' models "
            "differ by, in any element"
        )
    if bits not in _WIDTHS:
        raise ValueError(f"{_CALLER}: bits={bits!r} must be one of {_WIDTHS}")

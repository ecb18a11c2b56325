"""Trees that neighbours tell each other in codes: what compressed gossip shares.

Cost: the payload of each bucket, to each neighbour.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from relaxjax._core._checks import require_dtypes, require_fraction
from relaxjax._core._cond import cond
from relaxjax._core._merge_rules import Leaf, Merge
from relaxjax._core._random import key_words
from relaxjax._core._sharding import on_own_shards
from relaxjax.collectives import neighbor_payloads
from relaxjax.compression import NO_FEEDBACK, Compressor, contractive
from relaxjax.decentralized._round import (
    GossipSpec,
    in_buckets,
    require_one_axis,
    require_one_round,
    require_size,
    silent,
)
from relaxjax.gradients import as_codec, step_keys


def checked_codec(mixing: GossipSpec, compressor: Compressor) -> Compressor:
    """The compressor as a contraction.

    Raises:
      TypeError: two axes.
      ValueError: it has feedback, or is no contraction; a topology of several rounds.
    """
    caller = mixing.caller
    if compressor.feedback is not NO_FEEDBACK:
        raise ValueError(
            f"{caller}: {compressor.name} has {compressor.feedback.name}; what is lost "
            "comes back by itself here: give the bare compressor"
        )
    require_one_axis(mixing)
    require_one_round(mixing, "what neighbours know of each other")
    return contractive(compressor)


def check_step_size(caller: str, gamma: float) -> None:
    """Raises ValueError unless in (0, 1]."""
    remedy = "; the more the compressor loses, the smaller (0.45: signs, ring of 8)"
    require_fraction(caller, "consensus_step_size", gamma, remedy)


def require_codable(mixing: GossipSpec, compressor: Compressor, params: Any) -> None:
    """Refuses leaves that no compressor takes."""
    require_dtypes(params, mixing.caller, compressor.name)


def initial_key(compressor: Compressor, seed: int) -> Any:
    """The randomness of the first step; () of deterministic compressors."""
    return key_words(seed) if compressor.random else ()


def num_copies(mixing: GossipSpec) -> int:
    """How many a worker knows of: itself, and the sender of each message."""
    return 1 + len(mixing.topology.messages())


def merge_copies(leaf: Leaf, merge: Merge) -> np.ndarray:
    """The rule of copies: the workers' own, merged, is what all know of all.

    So both ends of each new link have the same copy, and as the models merge likewise,
    what is still to be told of them, x - x^, stays on the mean.
    """
    _, _, rest = leaf.inside.partition("/")
    own = leaf.saved("/".join(filter(None, (leaf.path.partition("/")[0], "0", rest))))
    return merge(leaf, own)


def exchange_encoded(
    mixing: GossipSpec, compressor: Compressor, p: Any, words: Any, step: jax.Array
) -> tuple[list[Any], Any]:
    """What `p` says to its worker itself and, for each message, what is heard.

    Args:
      mixing: of one round.
      compressor: as `checked_codec` gave it.
      p: a pytree of float32 arrays.
      words: the compressor's randomness, as of `CompressedState`.
      step: as of `Mixing.change`; where no round is due, all say zero.

    Returns:
      1 + `len(topology.messages())` trees like p, and the words of the next step.
    """
    mixing.require(p)
    noises, words = step_keys(compressor, words, mixing.axis_name)
    count = num_copies(mixing)

    def exchange(p: Any, noises: Any) -> tuple[Any, ...]:
        def tell(flat: jax.Array, number: jax.Array) -> tuple[jax.Array, ...]:
            codec = as_codec(compressor, noises, number)
            name, topology = mixing.outer, mixing.topology
            return tuple(neighbor_payloads(flat, name, topology, codec))

        return in_buckets(mixing, p, tell, count)

    def talk(p: Any) -> tuple[Any, ...]:
        given = p, mixing.specs, mixing.caller, noises
        return on_own_shards(exchange, *given, results=count)

    def wait(p: Any) -> tuple[Any, ...]:
        return (silent(p),) * count

    return list(cond(mixing.due(step), talk, wait, p)), words


def consensus_step(mixing: GossipSpec, known: list[Any]) -> Any:
    """sum_j W_ij (x_j - x_i), of what is known of this worker and of its neighbours.

    Args:
      mixing: of one round.
      known: trees as of `exchange_encoded`.
    """
    require_size(mixing)
    own, *others = known
    change = jax.tree.map(jnp.zeros_like, own)
    place = lax.axis_index(mixing.outer)
    for (_, weights), other in zip(mixing.topology.messages(), others, strict=True):
        w = jnp.asarray(weights, jnp.float32)[place]  # 0 where none comes
        change = jax.tree.map(lambda c, x, y, w=w: c + w * (y - x), change, own, other)
    return change

"""Trees that neighbors tell each other in codes: what compressed gossip shares.

Cost: the payload of each bucket, to each neighbor.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from relaxjax._core._arrays import require_dtypes
from relaxjax._core._checks import require_fraction
from relaxjax._core._cond import when
from relaxjax._core._merge_rules import Leaf, Merge
from relaxjax._core._random import key_words
from relaxjax._core.layouts._sharding import on_own_shards
from relaxjax.collectives import neighbor_payloads
from relaxjax.compression import NO_FEEDBACK, Compressor, contractive
from relaxjax.decentralized._round import GossipSpec
from relaxjax.decentralized._spec import require_fixed
from relaxjax.gradients import as_codec, step_keys


class CodedRound(NamedTuple):
    """How neighbors exchange trees in codes, over one axis and one round's topology."""

    spec: GossipSpec
    compressor: Compressor

    def require_codable(self, params: Any) -> None:
        """Refuses leaves that no compressor takes."""
        require_dtypes(params, self.spec.caller, self.compressor.name)

    def initial_key(self, seed: int) -> Any:
        """The randomness of the first step; () if the compressor is deterministic."""
        return key_words(seed) if self.compressor.random else ()

    @property
    def num_copies(self) -> int:
        """The number of models a worker knows: its own, and each message's sender's."""
        return 1 + len(self.spec.topology.messages())

    def exchange_encoded(
        self, p: Any, words: Any, step: jax.Array
    ) -> tuple[list[Any], Any]:
        """What this worker's code of `p` says, then what each message's says.

        Those are `num_copies` trees like p, and zero where no round is due; the words
        are the randomness of this step, and of the next. Codes are of float32.
        """
        spec, count = self.spec, self.num_copies
        spec.require(p)
        keys, words = step_keys(self.compressor, words, spec.axis_name)

        def exchange(p: Any, keys: Any) -> tuple[Any, ...]:
            def tell(flat: jax.Array, number: jax.Array) -> tuple[jax.Array, ...]:
                codec = as_codec(self.compressor, keys, number)
                narrow = flat.astype(jnp.float32)
                said = neighbor_payloads(narrow, spec.outer, spec.topology, codec)
                return tuple(x.astype(flat.dtype) for x in said)

            return spec.in_buckets(p, tell, count)

        def communicate(_: Any, p: Any) -> tuple[Any, ...]:
            return on_own_shards(
                exchange, p, spec.specs, spec.caller, keys, results=count
            )

        nothing = (optax.tree.zeros_like(p),) * count
        return list(when(spec.is_round_due(step), communicate, nothing, p)), words

    def consensus_step(self, known: list[Any]) -> Any:
        """sum_j W_ij (x_j - x_i), from the trees that `exchange_encoded` gives."""
        self.spec.require_size()
        own, *others = known
        change = optax.tree.zeros_like(own)
        place = lax.axis_index(self.spec.outer)
        messages = self.spec.topology.messages()
        for (_, weights), other in zip(messages, others, strict=True):
            w = jnp.asarray(weights, jnp.float32)[place]  # 0 where none comes
            change = jax.tree.map(
                lambda c, x, y, w=w: c + w * (y - x), change, own, other
            )
        return change


def coded_round(spec: GossipSpec, compressor: Compressor) -> CodedRound:
    """How neighbors exchange trees in codes of a bare contraction, checked."""
    if compressor.feedback is not NO_FEEDBACK:
        raise ValueError(
            f"{spec.caller}: {compressor.name} has {compressor.feedback.name}; what is "
            "lost comes back by itself here: give the bare compressor"
        )
    require_fixed(spec, "what neighbors know of each other")
    return CodedRound(spec, contractive(compressor))


def check_step_size(caller: str, gamma: float) -> None:
    """Raises ValueError unless in (0, 1]."""
    remedy = "; the more the compressor loses, the smaller (0.45: signs, ring of 8)"
    require_fraction(caller, "consensus_step_size", gamma, remedy)


def merge_copies(leaf: Leaf, merge: Merge) -> np.ndarray:
    """The rule of copies: the merged models of the workers are what all know of all.

    So both ends of each new link have the same copy, and as the models merge likewise,
    what is still to be told of them, x - x^, stays on the mean.
    """
    _, _, rest = leaf.inside.partition("/")
    own = leaf.saved("/".join(filter(None, (leaf.path.partition("/")[0], "0", rest))))
    return merge(leaf, own)

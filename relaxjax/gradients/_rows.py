"""The named reducers before an optimizer, and the optimizers that compress."""

import functools

from relaxjax._core._relaxation import Relaxation, Sends
from relaxjax.gradients._builds import (
    before,
    build_bounded_staleness,
    build_deep_gradient_compression,
    build_delay,
    build_demo,
    build_power_sgd,
    matrices_by,
    optimizer,
)
from relaxjax.gradients.adaptive._one_bit_adam import one_bit_adam
from relaxjax.gradients.adaptive._one_bit_lamb import one_bit_lamb
from relaxjax.gradients.adaptive._zero_one_adam import zero_one_adam
from relaxjax.gradients.low_rank._acp_sgd import acp_sgd
from relaxjax.gradients.mean._choices import CHOICES
from relaxjax.gradients.mean._exact_mean import ALGORITHMS
from relaxjax.gradients.mean._matrices_only import reducer
from relaxjax.gradients.momenta._arc_top_k import arc_top_k
from relaxjax.gradients.momenta._dion import dion
from relaxjax.gradients.momenta._dion2 import dion2

_reduces = functools.partial(Relaxation, algorithms=CHOICES, compressors=True)
_sums = functools.partial(Relaxation, algorithms=("auto", "psum", *ALGORITHMS))
_FREEZE = frozenset({"freeze_step", "weight_decay"})
_freezes = functools.partial(Relaxation, compressors=True, options=_FREEZE, period=None)
ROWS = [
    _reduces(
        name="all_reduce",
        summary="synchronous: every step takes the mean of all gradients",
        build=before(reducer),
        options=frozenset({"bucket_bytes", "merge", "plain"}),
        sends=Sends(
            kind="gradients",
            line="optax.chain(relaxjax.all_reduce({args}), optimizer)",
            why="everything, every step, by the backend's own all-reduce",
            variants=True,
        ),
    ),
    Relaxation(
        name="deep_gradient_compression",
        summary="of a momentum that waits, the largest are sent (DGC)",
        build=build_deep_gradient_compression,
        options=frozenset({"density", "momentum", "warmup_steps"}),
        parent="momentum",
        period=None,
    ),
    _sums(
        name="power_sgd",
        summary="the mean gradient in low rank, with error feedback",
        build=build_power_sgd,
        options=frozenset(
            {"bits", "highest", "iterations", "min_compression", "rank", "start_after"}
        ),
        period=None,
        sends=Sends(
            kind="low_rank",
            line="optax.chain(relaxjax.power_sgd({args}), optimizer)",
        ),
    ),
    _sums(
        name="acp_sgd",
        summary="the factors of low rank by turns, one message a step",
        build=before(acp_sgd),
        options=frozenset({"bits", "rank", "start_after", "min_compression"}),
        period=None,
        sends=Sends(
            kind="low_rank_by_turns",
            line="optax.chain(relaxjax.acp_sgd({args}), optimizer)",
        ),
    ),
    _sums(
        name="arc_top_k",
        summary="the rows that a common sketch finds largest, in a plain sum",
        build=before(arc_top_k),
        options=frozenset({"bits", "density", "eta", "rank"}),
    ),
    Relaxation(
        name="demo",
        summary="signs of the frequencies that momenta have in common",
        build=build_demo,
        options=frozenset({"chunk", "decay", "k", "rate"}),
    ),
    _sums(
        name="dion",
        summary="Muon in low rank; two factors of a momentum are sent",
        build=matrices_by(dion),
        options=frozenset({"bits", "decay", "fraction", "matrix_rate"}),
    ),
    _sums(
        name="dion2",
        summary="Muon of the largest rows of a momentum, which alone are sent",
        build=matrices_by(dion2),
        options=frozenset({"bits", "decay", "fraction", "matrix_rate", "neuron_decay"}),
    ),
    _freezes(
        name="one_bit_adam",
        summary="AdamW; later its momentum travels in one bit",
        build=optimizer(one_bit_adam),
    ),
    _freezes(
        name="one_bit_lamb",
        summary="LAMB; later its momentum travels in one bit",
        build=optimizer(one_bit_lamb),
        parent="lamb",
    ),
    _freezes(
        name="zero_one_adam",
        summary="AdamW in one bit, then with local steps as well",
        build=optimizer(zero_one_adam),
        options=_FREEZE | {"local_doubling", "most_local_steps", "variance_doubling"},
        apart=True,
    ),
    _reduces(
        name="delay",
        summary="all_reduce of gradients that have waited some steps",
        build=build_delay,
        options=frozenset({"bucket_bytes", "steps"}),
        sends=Sends(
            kind="gradients",
            line="optax.chain(relaxjax.delay(1), "
            "relaxjax.all_reduce({args}), optimizer)",
            why="gradients of the step before travel behind a whole step",
            early=True,
        ),
    ),
    _reduces(
        name="bounded_staleness",
        summary="all_reduce of gradients that arrive late, as drawn",
        build=build_bounded_staleness,
        options=frozenset({"bucket_bytes", "most", "seed"}),
    ),
]

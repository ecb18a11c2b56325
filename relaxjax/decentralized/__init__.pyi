# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.decentralized._atc_tracking import atc_tracking as atc_tracking
from relaxjax.decentralized._choco import ChocoState as ChocoState
from relaxjax.decentralized._dcd_psgd import DcdPsgdState as DcdPsgdState
from relaxjax.decentralized._dcd_psgd import dcd_psgd as dcd_psgd
from relaxjax.decentralized._deep_squeeze import DeepSqueezeState as DeepSqueezeState
from relaxjax.decentralized._deep_squeeze import deep_squeeze as deep_squeeze
from relaxjax.decentralized._exact_diffusion import (
    ExactDiffusionState as ExactDiffusionState,
)
from relaxjax.decentralized._exact_diffusion import exact_diffusion as exact_diffusion
from relaxjax.decentralized._gossip import combine_then_adapt as combine_then_adapt
from relaxjax.decentralized._gossip import gossip as gossip
from relaxjax.decentralized._gradient_tracking import (
    GradientTrackingState as GradientTrackingState,
)
from relaxjax.decentralized._gradient_tracking import (
    gradient_tracking as gradient_tracking,
)
from relaxjax.decentralized._lossy_push_sum import (
    LossyPushSumState as LossyPushSumState,
)
from relaxjax.decentralized._lossy_push_sum import lossy_push_sum as lossy_push_sum
from relaxjax.decentralized._moniqua import moniqua as moniqua
from relaxjax.decentralized._noloco import NoLoCoState as NoLoCoState
from relaxjax.decentralized._noloco import noloco as noloco
from relaxjax.decentralized._push_sum import PushSumState as PushSumState
from relaxjax.decentralized._push_sum import push_sum as push_sum
from relaxjax.decentralized._quasi_global_momentum import (
    QuasiGlobalMomentumState as QuasiGlobalMomentumState,
)
from relaxjax.decentralized._quasi_global_momentum import (
    quasi_global_momentum as quasi_global_momentum,
)
from relaxjax.decentralized._relay_sum import RelaySumState as RelaySumState
from relaxjax.decentralized._relay_sum import relay_sum as relay_sum
from relaxjax.decentralized._round import GossipState as GossipState

__all__ = [
    "ChocoState",
    "DcdPsgdState",
    "DeepSqueezeState",
    "ExactDiffusionState",
    "GossipState",
    "GradientTrackingState",
    "LossyPushSumState",
    "NoLoCoState",
    "PushSumState",
    "QuasiGlobalMomentumState",
    "RelaySumState",
    "atc_tracking",
    "combine_then_adapt",
    "dcd_psgd",
    "deep_squeeze",
    "exact_diffusion",
    "gossip",
    "gradient_tracking",
    "lossy_push_sum",
    "moniqua",
    "noloco",
    "push_sum",
    "quasi_global_momentum",
    "relay_sum",
]

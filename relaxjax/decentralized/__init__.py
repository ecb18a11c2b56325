"""After the optimizer: models averaged with a few neighbors, not with all."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_atc_tracking": "atc_tracking",
        "_choco": "ChocoState",
        "_dcd_psgd": "DcdPsgdState dcd_psgd",
        "_deep_squeeze": "DeepSqueezeState deep_squeeze",
        "_exact_diffusion": "ExactDiffusionState exact_diffusion",
        "_gossip": "combine_then_adapt gossip",
        "_gradient_tracking": "GradientTrackingState gradient_tracking",
        "_lossy_push_sum": "LossyPushSumState lossy_push_sum",
        "_moniqua": "moniqua",
        "_noloco": "NoLoCoState noloco",
        "_push_sum": "PushSumState push_sum",
        "_quasi_global_momentum": "QuasiGlobalMomentumState quasi_global_momentum",
        "_relay_sum": "RelaySumState relay_sum",
        "_round": "GossipState",
    },
)

"""Before the optimizer: every worker comes out with the same update."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "late._accumulate": "AccumulateState accumulate",
        "low_rank._acp_sgd": "AcpSGDState acp_sgd",
        "late._by_step": "ByStepState by_step",
        "mean._all_reduce": "AllReduceState all_reduce",
        "momenta._arc_top_k": "ArcTopKState arc_top_k",
        "late._bounded_staleness": "BoundedStalenessState bounded_staleness "
        "random_delays",
        "late._dc_asgd": "DcAsgdState dc_asgd",
        "momenta._deep_gradient_compression": "DeepGradientCompressionState "
        "deep_gradient_compression",
        "late._delay": "DelayState delay",
        "momenta._demo": "DemoState demo",
        "momenta._dion": "DionState dion",
        "momenta._dion2": "Dion2State dion2",
        "mean._matrices_only": "compress_matrices",
        "mean._factored_product": "factored_product factored_product_wire_bytes",
        "adaptive._one_bit_adam": "OneBitAdamState one_bit_adam",
        "adaptive._one_bit_lamb": "OneBitLambState one_bit_lamb",
        "low_rank._power_sgd": "PowerSGDState power_sgd",
        "late._warm_up": "PartOfTrainingState before_step from_step",
        "adaptive._zero_one_adam": "ZeroOneAdamState zero_one_adam",
    },
    shared={
        "low_rank._alternate": "alternate",
        "late._bounded_staleness": "staleness_table",
        "mean._by_lengths": "by_lengths",
        "mean._choices": "CHOICES",
        "mean._codec": "as_codec step_keys",
        "_by_slice": "require_same_by_slice",
        "_elementwise": "require_elementwise",
        "mean._exact_mean": "ALGORITHMS",
        "low_rank._low_rank": "Matrices low_rank_mean matrices_of most_square",
        "low_rank._low_rank_sides": "views_of",
        "mean._matrices_only": "label_leaves reducer",
        "mean._packing": "map_buckets merge_small",
    },
)

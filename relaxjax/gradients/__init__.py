"""Before the optimizer: every worker comes out with the same update."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_accumulate": "AccumulateState accumulate",
        "_acp_sgd": "AcpSGDState acp_sgd",
        "_all_reduce": "AllReduceState all_reduce",
        "_arc_top_k": "ArcTopKState arc_top_k",
        "_bounded_staleness": "BoundedStalenessState bounded_staleness random_delays",
        "_dc_asgd": "DcAsgdState dc_asgd",
        "_deep_gradient_compression": "DeepGradientCompressionState "
        "deep_gradient_compression",
        "_delay": "DelayState delay",
        "_demo": "DemoState demo",
        "_dion": "DionState dion",
        "_dion2": "Dion2State dion2",
        "_factored_product": "factored_product factored_product_wire_bytes",
        "_one_bit_adam": "OneBitAdamState one_bit_adam",
        "_one_bit_lamb": "OneBitLambState one_bit_lamb",
        "_power_sgd": "PowerSGDState power_sgd",
        "_warm_up": "PartOfTrainingState before_step from_step",
        "_zero_one_adam": "ZeroOneAdamState zero_one_adam",
    },
    shared={
        "_alternate": "alternate",
        "_bounded_staleness": "staleness_table",
        "_choices": "CHOICES",
        "_codec": "as_codec step_keys",
        "_elementwise": "require_elementwise",
        "_exact_mean": "ALGORITHMS",
        "_low_rank": "Matrices low_rank_mean matrices_of most_square",
        "_low_rank_sides": "views_of",
        "_matrices_only": "label_leaves reducer",
        "_packing": "map_buckets merge_small",
    },
)

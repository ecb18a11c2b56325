# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.gradients._by_slice import require_same_by_slice as require_same_by_slice
from relaxjax.gradients._elementwise import require_elementwise as require_elementwise
from relaxjax.gradients.adaptive._one_bit_adam import OneBitAdamState as OneBitAdamState
from relaxjax.gradients.adaptive._one_bit_adam import one_bit_adam as one_bit_adam
from relaxjax.gradients.adaptive._one_bit_lamb import OneBitLambState as OneBitLambState
from relaxjax.gradients.adaptive._one_bit_lamb import one_bit_lamb as one_bit_lamb
from relaxjax.gradients.adaptive._zero_one_adam import (
    ZeroOneAdamState as ZeroOneAdamState,
)
from relaxjax.gradients.adaptive._zero_one_adam import zero_one_adam as zero_one_adam
from relaxjax.gradients.late._accumulate import AccumulateState as AccumulateState
from relaxjax.gradients.late._accumulate import accumulate as accumulate
from relaxjax.gradients.late._bounded_staleness import (
    BoundedStalenessState as BoundedStalenessState,
)
from relaxjax.gradients.late._bounded_staleness import (
    bounded_staleness as bounded_staleness,
)
from relaxjax.gradients.late._bounded_staleness import random_delays as random_delays
from relaxjax.gradients.late._bounded_staleness import (
    staleness_table as staleness_table,
)
from relaxjax.gradients.late._by_step import ByStepState as ByStepState
from relaxjax.gradients.late._by_step import by_step as by_step
from relaxjax.gradients.late._dc_asgd import DcAsgdState as DcAsgdState
from relaxjax.gradients.late._dc_asgd import dc_asgd as dc_asgd
from relaxjax.gradients.late._delay import DelayState as DelayState
from relaxjax.gradients.late._delay import delay as delay
from relaxjax.gradients.late._warm_up import PartOfTrainingState as PartOfTrainingState
from relaxjax.gradients.late._warm_up import before_step as before_step
from relaxjax.gradients.late._warm_up import from_step as from_step
from relaxjax.gradients.low_rank._acp_sgd import AcpSGDState as AcpSGDState
from relaxjax.gradients.low_rank._acp_sgd import acp_sgd as acp_sgd
from relaxjax.gradients.low_rank._alternate import alternate as alternate
from relaxjax.gradients.low_rank._low_rank import Matrices as Matrices
from relaxjax.gradients.low_rank._low_rank import low_rank_mean as low_rank_mean
from relaxjax.gradients.low_rank._low_rank import matrices_of as matrices_of
from relaxjax.gradients.low_rank._low_rank import most_square as most_square
from relaxjax.gradients.low_rank._low_rank_sides import views_of as views_of
from relaxjax.gradients.low_rank._power_sgd import PowerSGDState as PowerSGDState
from relaxjax.gradients.low_rank._power_sgd import power_sgd as power_sgd
from relaxjax.gradients.mean._all_reduce import AllReduceState as AllReduceState
from relaxjax.gradients.mean._all_reduce import all_reduce as all_reduce
from relaxjax.gradients.mean._by_lengths import by_lengths as by_lengths
from relaxjax.gradients.mean._choices import CHOICES as CHOICES
from relaxjax.gradients.mean._codec import as_codec as as_codec
from relaxjax.gradients.mean._codec import step_keys as step_keys
from relaxjax.gradients.mean._exact_mean import ALGORITHMS as ALGORITHMS
from relaxjax.gradients.mean._factored_product import (
    factored_product as factored_product,
)
from relaxjax.gradients.mean._factored_product import (
    factored_product_wire_bytes as factored_product_wire_bytes,
)
from relaxjax.gradients.mean._matrices_only import (
    compress_matrices as compress_matrices,
)
from relaxjax.gradients.mean._matrices_only import label_leaves as label_leaves
from relaxjax.gradients.mean._matrices_only import reducer as reducer
from relaxjax.gradients.mean._packing import map_buckets as map_buckets
from relaxjax.gradients.mean._packing import merge_small as merge_small
from relaxjax.gradients.momenta._arc_top_k import ArcTopKState as ArcTopKState
from relaxjax.gradients.momenta._arc_top_k import arc_top_k as arc_top_k
from relaxjax.gradients.momenta._deep_gradient_compression import (
    DeepGradientCompressionState as DeepGradientCompressionState,
)
from relaxjax.gradients.momenta._deep_gradient_compression import (
    deep_gradient_compression as deep_gradient_compression,
)
from relaxjax.gradients.momenta._demo import DemoState as DemoState
from relaxjax.gradients.momenta._demo import demo as demo
from relaxjax.gradients.momenta._dion import DionState as DionState
from relaxjax.gradients.momenta._dion import dion as dion
from relaxjax.gradients.momenta._dion2 import Dion2State as Dion2State
from relaxjax.gradients.momenta._dion2 import dion2 as dion2

__all__ = [
    "AccumulateState",
    "AcpSGDState",
    "AllReduceState",
    "ArcTopKState",
    "BoundedStalenessState",
    "ByStepState",
    "DcAsgdState",
    "DeepGradientCompressionState",
    "DelayState",
    "DemoState",
    "Dion2State",
    "DionState",
    "OneBitAdamState",
    "OneBitLambState",
    "PartOfTrainingState",
    "PowerSGDState",
    "ZeroOneAdamState",
    "accumulate",
    "acp_sgd",
    "all_reduce",
    "arc_top_k",
    "before_step",
    "bounded_staleness",
    "by_step",
    "compress_matrices",
    "dc_asgd",
    "deep_gradient_compression",
    "delay",
    "demo",
    "dion",
    "dion2",
    "factored_product",
    "factored_product_wire_bytes",
    "from_step",
    "one_bit_adam",
    "one_bit_lamb",
    "power_sgd",
    "random_delays",
    "zero_one_adam",
]

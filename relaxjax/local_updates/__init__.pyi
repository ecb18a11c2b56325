# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.local_updates.common._fragments import deal as deal
from relaxjax.local_updates.common._local_steps import ExchangeSpec as ExchangeSpec
from relaxjax.local_updates.common._local_steps import OuterState as OuterState
from relaxjax.local_updates.common._tokens import weight_of as weight_of
from relaxjax.local_updates.late._asynchronous_average import (
    AsynchronousAverageState as AsynchronousAverageState,
)
from relaxjax.local_updates.late._asynchronous_average import (
    asynchronous_average as asynchronous_average,
)
from relaxjax.local_updates.late._asynchronous_diloco import (
    AsynchronousDilocoState as AsynchronousDilocoState,
)
from relaxjax.local_updates.late._asynchronous_diloco import (
    arrival_table as arrival_table,
)
from relaxjax.local_updates.late._asynchronous_diloco import (
    asynchronous_diloco as asynchronous_diloco,
)
from relaxjax.local_updates.late._decoupled_diloco import (
    decoupled_diloco as decoupled_diloco,
)
from relaxjax.local_updates.late._decoupled_state import (
    DecoupledDilocoState as DecoupledDilocoState,
)
from relaxjax.local_updates.late._delayed_nesterov import (
    DelayedNesterovState as DelayedNesterovState,
)
from relaxjax.local_updates.late._delayed_nesterov import (
    delayed_nesterov as delayed_nesterov,
)
from relaxjax.local_updates.late._eager_diloco import (
    EagerDilocoState as EagerDilocoState,
)
from relaxjax.local_updates.late._eager_diloco import eager_diloco as eager_diloco
from relaxjax.local_updates.late._heloco import HelocoState as HelocoState
from relaxjax.local_updates.late._heloco import heloco as heloco
from relaxjax.local_updates.late._streaming_diloco import (
    StreamingDilocoState as StreamingDilocoState,
)
from relaxjax.local_updates.late._streaming_diloco import (
    streaming_diloco as streaming_diloco,
)
from relaxjax.local_updates.parts._desynced import AveragedState as AveragedState
from relaxjax.local_updates.parts._desynced import DesyncedState as DesyncedState
from relaxjax.local_updates.parts._desynced import desynced as desynced
from relaxjax.local_updates.parts._sparta import SpartaState as SpartaState
from relaxjax.local_updates.parts._sparta import sparta as sparta
from relaxjax.local_updates.periodic._diloco import AnchorState as AnchorState
from relaxjax.local_updates.periodic._diloco import diloco as diloco
from relaxjax.local_updates.periodic._diloco import outer_step as outer_step
from relaxjax.local_updates.periodic._hierarchical_local_sgd import (
    hierarchical_local_sgd as hierarchical_local_sgd,
)
from relaxjax.local_updates.periodic._local_sgd import local_sgd as local_sgd
from relaxjax.local_updates.periodic._post_local_sgd import (
    post_local_sgd as post_local_sgd,
)
from relaxjax.local_updates.periodic._slow_momentum import (
    SlowMomentumState as SlowMomentumState,
)
from relaxjax.local_updates.periodic._slow_momentum import (
    slow_momentum as slow_momentum,
)
from relaxjax.local_updates.periodic._sparse_loco import sparse_loco as sparse_loco

__all__ = [
    "AsynchronousAverageState",
    "AsynchronousDilocoState",
    "AveragedState",
    "DecoupledDilocoState",
    "DelayedNesterovState",
    "DesyncedState",
    "EagerDilocoState",
    "HelocoState",
    "OuterState",
    "SlowMomentumState",
    "SpartaState",
    "StreamingDilocoState",
    "arrival_table",
    "asynchronous_average",
    "asynchronous_diloco",
    "decoupled_diloco",
    "delayed_nesterov",
    "desynced",
    "diloco",
    "eager_diloco",
    "heloco",
    "hierarchical_local_sgd",
    "local_sgd",
    "post_local_sgd",
    "slow_momentum",
    "sparse_loco",
    "sparta",
    "streaming_diloco",
]

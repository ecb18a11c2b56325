# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.workers._consensus import at_mean as at_mean
from relaxjax.workers._consensus import consensus as consensus
from relaxjax.workers._consensus import consensus_distance as consensus_distance
from relaxjax.workers._consensus import of_one_worker as of_one_worker
from relaxjax.workers._consensus import spread as spread
from relaxjax.workers._data_parallel import DataParallelStep as DataParallelStep
from relaxjax.workers._data_parallel import data_parallel as data_parallel
from relaxjax.workers._in_backward import reduce_in_backward as reduce_in_backward
from relaxjax.workers._init import checked as checked
from relaxjax.workers._init import init as init
from relaxjax.workers._init import init_state as init_state
from relaxjax.workers._init import state_shapes as state_shapes
from relaxjax.workers._init import state_specs as state_specs
from relaxjax.workers._mesh import Emulation as Emulation
from relaxjax.workers._mesh import WorkerMesh as WorkerMesh
from relaxjax.workers._mesh import emulate as emulate
from relaxjax.workers._processes import (
    broadcast_from_first_process as broadcast_from_first_process,
)
from relaxjax.workers._processes import on_host as on_host
from relaxjax.workers._scan_layers import scan_layers as scan_layers
from relaxjax.workers._startup_agreement import DIGESTS as DIGESTS
from relaxjax.workers._startup_agreement import MESH as MESH
from relaxjax.workers._startup_agreement import TREE as TREE
from relaxjax.workers._startup_agreement import UNSEEN as UNSEEN
from relaxjax.workers._startup_agreement import VERSIONS as VERSIONS
from relaxjax.workers._startup_agreement import bare_text as bare_text
from relaxjax.workers._startup_agreement import describe as describe
from relaxjax.workers._startup_agreement import require_agreement as require_agreement
from relaxjax.workers._startup_agreement import (
    require_equal_processes as require_equal_processes,
)
from relaxjax.workers._startup_agreement import version_line as version_line
from relaxjax.workers._startup_agreement import versions as versions
from relaxjax.workers._to_workers import to_workers as to_workers
from relaxjax.workers._to_workers import workers_of as workers_of
from relaxjax.workers._worker_axis import put as put
from relaxjax.workers.followed._synchronized import (
    require_synchronized as require_synchronized,
)
from relaxjax.workers.followed._traced import traced as traced
from relaxjax.workers.followed._traced import tracing as tracing

__all__ = [
    "DataParallelStep",
    "Emulation",
    "consensus",
    "consensus_distance",
    "data_parallel",
    "emulate",
    "init",
    "reduce_in_backward",
    "scan_layers",
    "spread",
    "state_specs",
    "to_workers",
]

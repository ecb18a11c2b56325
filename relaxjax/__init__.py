"""Relaxed collectives for JAX: send less, later, to fewer peers, or in a better order.

Every relaxation is an optax-style gradient transformation over a named axis.
"""

from relaxjax._core._lazy import door

__version__ = "0.4.0"

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "": "activations check checkpoint collectives compare compression controllers "
        "fsdp golden hosts islands merges periods plan ps schedule tasks topology",
        "_core._axis": "to_local",
        "_core._local": "LocalState local",
        "_core._phases": "Clock advance_phases",
        "_core._tree": "Layout",
        "_core.layouts._counted_once": "counted_once",
        "_core.layouts._unreduced": "unreduced",
        "_core._weights": "worker_weight",
        "_core._worker_key": "worker_key",
        "ps._parameter_server": "ParameterServerState parameter_server",
    },
    rooms="decentralized faults gradients local_updates programs workers",
)

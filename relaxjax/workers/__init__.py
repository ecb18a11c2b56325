"""Workers: their mesh, their state, their common step, and one model from theirs."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_consensus": "consensus consensus_distance spread",
        "_data_parallel": "DataParallelStep data_parallel",
        "_in_backward": "reduce_in_backward",
        "_init": "init state_specs",
        "_mesh": "Emulation emulate",
        "_scan_layers": "scan_layers",
        "_to_workers": "to_workers",
    },
    shared={
        "_consensus": "at_mean of_one_worker",
        "_init": "checked init_state state_shapes",
        "_mesh": "WorkerMesh",
        "_processes": "broadcast_from_first_process on_host",
        "followed._synchronized": "require_synchronized",
        "_to_workers": "workers_of",
        "followed._traced": "traced tracing",
        "_startup_agreement": "DIGESTS MESH TREE UNSEEN VERSIONS bare_text describe "
        "require_agreement require_equal_processes version_line versions",
        "_worker_axis": "put",
    },
)

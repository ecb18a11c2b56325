"""Plans and predictions in plain Python: no traced value ever enters here."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "orders._baselines": "fifo layer_order random_order smallest_first",
        "orders._best": "best",
        "orders._bounds": "Bounds bounds efficiency gap lower_bound speedup_potential",
        "replayed._chakra": "chakra",
        "simulator._cluster": "Cluster Stragglers Workers",
        "orders._condense": "condensed",
        "simulator._engine": "Span",
        "orders._families": "random_graph",
        "graphs._graph": "Graph",
        "graphs._hardware": "Cost Device Link",
        "orders._local_search": "local_search",
        "orders._makespan": "makespan",
        "orders._optimum": "optimum",
        "graphs._oracle": "Estimate Oracle analytic given measured",
        "simulator._mg_wfbp": "mg_wfbp",
        "simulator._policies": "Policy byte_scheduler dear ordered p3 unordered "
        "wait_free",
        "orders._properties": "Properties properties",
        "simulator._record": "record",
        "replayed._replay": "Replay Transfer replay",
        "orders._series_parallel": "series_parallel_order",
        "simulator._simulate": "simulate",
        "orders._tictac": "priorities_tic tac tic",
        "simulator._timeline": "Timeline",
        "graphs._trace": "backward_order",
        "relaxjax._core._sending_order": "sent_first",
        "relaxjax._core._buckets": "Bucket Segment plan_buckets plan_groups",
    },
)

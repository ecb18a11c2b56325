"""Plans and predictions in plain Python: no traced value ever enters here."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_baselines": "fifo layer_order random_order smallest_first",
        "_best": "best",
        "_bounds": "Bounds bounds efficiency gap lower_bound speedup_potential",
        "_chakra": "chakra",
        "_cluster": "Cluster Stragglers Workers",
        "_condense": "condensed",
        "_engine": "Span",
        "_families": "random_graph",
        "_graph": "Graph",
        "_hardware": "Cost Device Link",
        "_local_search": "local_search",
        "_makespan": "makespan",
        "_optimum": "optimum",
        "_oracle": "Estimate Oracle analytic given measured",
        "_mg_wfbp": "mg_wfbp",
        "_policies": "Policy byte_scheduler dear ordered p3 unordered wait_free",
        "_properties": "Properties properties",
        "_record": "record",
        "_replay": "Replay Transfer replay",
        "_series_parallel": "series_parallel_order",
        "_simulate": "simulate",
        "_tictac": "priorities_tic tac tic",
        "_timeline": "Timeline",
        "_trace": "backward_order",
        "relaxjax._core._sending_order": "sent_first",
        "relaxjax._core._buckets": "Bucket Segment plan_buckets plan_groups",
    },
)

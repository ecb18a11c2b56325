"""Inside a split model: activations and their gradients in codes, each way its own."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_all_to_all": "all_to_all",
        "_as_codes": "all_gather_codes all_to_all_codes",
        "_f_and_g": "all_reduce copy",
        "_gather_scatter": "all_gather reduce_scatter",
        "_send": "send",
        "_sent_bytes": "SentBytes sent_bytes",
        "_traced_bytes": "traced_bytes",
    },
)

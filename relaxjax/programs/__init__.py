"""What a traced or a compiled program sends, to the byte."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_compiled": "compiled_wire_bytes",
        "_explain": "Explanation explain",
        "_export": "register_for_export",
        "_wire_bytes": "wire_bytes",
    },
    shared={
        "_by_axis": "sent_both_ways",
        "_compiled": "compiled_text lowered",
        "_hlo_groups": "groups_of",
        "_hlo_sent": "bytes_sent bytes_sent_by is_collective is_host_copy pairs_of",
        "_hlo_calls": "called_by loop_parts max_trip_count trip_count",
        "_hlo_module": "Instruction Module arrays reading_hlo shape_nbytes",
        "_hlo_text": "parse",
        "_jaxpr_bytes": "shape_of",
        "_period": "first_steps repeats steps_of_a_run",
    },
)

# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.programs._by_axis import sent_both_ways as sent_both_ways
from relaxjax.programs._compiled import compiled_text as compiled_text
from relaxjax.programs._compiled import compiled_wire_bytes as compiled_wire_bytes
from relaxjax.programs._compiled import lowered as lowered
from relaxjax.programs._explain import Explanation as Explanation
from relaxjax.programs._explain import explain as explain
from relaxjax.programs._export import register_for_export as register_for_export
from relaxjax.programs._hlo_calls import called_by as called_by
from relaxjax.programs._hlo_calls import loop_parts as loop_parts
from relaxjax.programs._hlo_calls import max_trip_count as max_trip_count
from relaxjax.programs._hlo_calls import trip_count as trip_count
from relaxjax.programs._hlo_groups import groups_of as groups_of
from relaxjax.programs._hlo_module import Instruction as Instruction
from relaxjax.programs._hlo_module import Module as Module
from relaxjax.programs._hlo_module import arrays as arrays
from relaxjax.programs._hlo_module import reading_hlo as reading_hlo
from relaxjax.programs._hlo_module import shape_nbytes as shape_nbytes
from relaxjax.programs._hlo_sent import bytes_sent as bytes_sent
from relaxjax.programs._hlo_sent import bytes_sent_by as bytes_sent_by
from relaxjax.programs._hlo_sent import is_collective as is_collective
from relaxjax.programs._hlo_sent import is_host_copy as is_host_copy
from relaxjax.programs._hlo_sent import pairs_of as pairs_of
from relaxjax.programs._hlo_text import parse as parse
from relaxjax.programs._jaxpr_bytes import shape_of as shape_of
from relaxjax.programs._period import first_steps as first_steps
from relaxjax.programs._period import repeats as repeats
from relaxjax.programs._period import steps_of_a_run as steps_of_a_run
from relaxjax.programs._wire_bytes import wire_bytes as wire_bytes

__all__ = [
    "Explanation",
    "compiled_wire_bytes",
    "explain",
    "register_for_export",
    "wire_bytes",
]

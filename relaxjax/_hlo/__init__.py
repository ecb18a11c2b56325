"""Compiled programs as text: what they are made of, and what they send."""

from relaxjax._hlo._groups import group_of, groups_of
from relaxjax._hlo._sent import bytes_sent, bytes_sent_by, is_collective, is_host_copy
from relaxjax._hlo._text import (
    Instruction,
    Module,
    arrays,
    called_by,
    loop_parts,
    parse,
    shape_nbytes,
    trip_count,
)

__all__ = [
    "Instruction",
    "Module",
    "arrays",
    "bytes_sent",
    "bytes_sent_by",
    "called_by",
    "group_of",
    "groups_of",
    "is_collective",
    "is_host_copy",
    "loop_parts",
    "parse",
    "shape_nbytes",
    "trip_count",
]

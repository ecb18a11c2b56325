"""Compressors, from one flat array to a payload and back, and how losses return."""

from relaxjax.compression._econtrol import econtrol
from relaxjax.compression._ef21 import ef21, ef21_sgdm
from relaxjax.compression._error_feedback import error_feedback
from relaxjax.compression._protocol import (
    Compressor,
    Feedback,
    Law,
    payload_bytes,
    roundtrip,
)
from relaxjax.compression._random_k import random_block, random_k
from relaxjax.compression._sign import sign
from relaxjax.compression._threshold import threshold
from relaxjax.compression._top_k import top_k

__all__ = [
    "Compressor",
    "Feedback",
    "Law",
    "econtrol",
    "ef21",
    "ef21_sgdm",
    "error_feedback",
    "payload_bytes",
    "random_block",
    "random_k",
    "roundtrip",
    "sign",
    "threshold",
    "top_k",
]

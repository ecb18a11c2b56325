"""Compressors, from one flat array to a payload and back, and how losses return."""

from relaxjax.compression._cast import cast, identity
from relaxjax.compression._codebook import codebook
from relaxjax.compression._drive import drive, rotated_sign
from relaxjax.compression._econtrol import econtrol
from relaxjax.compression._ef21 import ef21, ef21_sgdm
from relaxjax.compression._error_feedback import error_feedback
from relaxjax.compression._loco import loco
from relaxjax.compression._min_max_uint8 import min_max_uint8
from relaxjax.compression._momentum_correction import momentum_correction
from relaxjax.compression._natural import dithering, natural
from relaxjax.compression._protocol import (
    Compressor,
    Feedback,
    Law,
    payload_bytes,
    roundtrip,
)
from relaxjax.compression._qsgd import qsgd
from relaxjax.compression._quantize import quantize
from relaxjax.compression._random_k import random_block, random_k
from relaxjax.compression._sign import sign
from relaxjax.compression._tern_grad import tern_grad
from relaxjax.compression._threshold import threshold
from relaxjax.compression._top_k import top_k

__all__ = [
    "Compressor",
    "Feedback",
    "Law",
    "cast",
    "codebook",
    "dithering",
    "drive",
    "econtrol",
    "ef21",
    "ef21_sgdm",
    "error_feedback",
    "identity",
    "loco",
    "min_max_uint8",
    "momentum_correction",
    "natural",
    "payload_bytes",
    "qsgd",
    "quantize",
    "random_block",
    "random_k",
    "rotated_sign",
    "roundtrip",
    "sign",
    "tern_grad",
    "threshold",
    "top_k",
]

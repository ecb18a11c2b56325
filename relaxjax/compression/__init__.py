"""Compressors, from one flat array to a payload and back, and how losses return."""

from relaxjax.compression._cast import cast, identity
from relaxjax.compression._codebook import codebook
from relaxjax.compression._drive import drive, rotated_sign
from relaxjax.compression._min_max_uint8 import min_max_uint8
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
from relaxjax.compression._sign import sign
from relaxjax.compression._tern_grad import tern_grad

__all__ = [
    "Compressor",
    "Feedback",
    "Law",
    "cast",
    "codebook",
    "dithering",
    "drive",
    "identity",
    "min_max_uint8",
    "natural",
    "payload_bytes",
    "qsgd",
    "quantize",
    "rotated_sign",
    "roundtrip",
    "sign",
    "tern_grad",
]

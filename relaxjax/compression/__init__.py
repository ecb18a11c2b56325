"""Compressors, from one flat array to a payload and back, and how losses return."""

from relaxjax.compression._protocol import (
    Compressor,
    Feedback,
    Law,
    payload_bytes,
    roundtrip,
)
from relaxjax.compression._sign import sign

__all__ = [
    "Compressor",
    "Feedback",
    "Law",
    "payload_bytes",
    "roundtrip",
    "sign",
]

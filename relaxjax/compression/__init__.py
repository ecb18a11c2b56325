"""Compressors, from one flat array to a payload and back, and how losses return."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_cast": "cast identity",
        "_codebook": "codebook",
        "_cosines": "in_cosines",
        "_drive": "drive rotated_sign",
        "_inspect": "payload_bytes roundtrip",
        "_min_max_uint8": "min_max_uint8",
        "_natural": "dithering natural",
        "_protocol": "Compressor Feedback Law",
        "_qsgd": "qsgd",
        "_quantize": "quantize",
        "_random_k": "random_block random_k",
        "_rotated": "rotated",
        "_scaling": "over_largest",
        "_sign": "sign",
        "_tern_grad": "tern_grad",
        "_threshold": "threshold",
        "_top_k": "top_k",
        "feedback._econtrol": "econtrol",
        "feedback._ef21": "ef21 ef21_sgdm",
        "feedback._error_feedback": "error_feedback",
        "feedback._intersection_feedback": "intersection_feedback",
        "feedback._loco": "loco",
        "feedback._momentum_correction": "momentum_correction",
        "formats._mx": "mx",
        "formats._nvfp4": "nvfp4",
    },
    shared={
        "_bits": "pack packed_bytes unpack width_below",
        "_cosines": "cosine_transform",
        "_protocol": "NO_FEEDBACK contractive require_compressor",
        "_rows": "COMPRESSORS FEEDBACKS expression",
        "_scaling": "over",
        "_top_k": "check_density count_of",
        "feedback._fed_back": "fed_back",
    },
)

# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.compression._bits import pack as pack
from relaxjax.compression._bits import packed_bytes as packed_bytes
from relaxjax.compression._bits import unpack as unpack
from relaxjax.compression._bits import width_below as width_below
from relaxjax.compression._cast import cast as cast
from relaxjax.compression._cast import identity as identity
from relaxjax.compression._codebook import codebook as codebook
from relaxjax.compression._cosines import cosine_transform as cosine_transform
from relaxjax.compression._cosines import in_cosines as in_cosines
from relaxjax.compression._drive import drive as drive
from relaxjax.compression._drive import rotated_sign as rotated_sign
from relaxjax.compression._inspect import payload_bytes as payload_bytes
from relaxjax.compression._inspect import roundtrip as roundtrip
from relaxjax.compression._min_max_uint8 import min_max_uint8 as min_max_uint8
from relaxjax.compression._natural import dithering as dithering
from relaxjax.compression._natural import natural as natural
from relaxjax.compression._protocol import NO_FEEDBACK as NO_FEEDBACK
from relaxjax.compression._protocol import Compressor as Compressor
from relaxjax.compression._protocol import Feedback as Feedback
from relaxjax.compression._protocol import Law as Law
from relaxjax.compression._protocol import contractive as contractive
from relaxjax.compression._protocol import require_compressor as require_compressor
from relaxjax.compression._qsgd import qsgd as qsgd
from relaxjax.compression._quantize import quantize as quantize
from relaxjax.compression._random_k import random_block as random_block
from relaxjax.compression._random_k import random_k as random_k
from relaxjax.compression._rotated import rotated as rotated
from relaxjax.compression._rows import COMPRESSORS as COMPRESSORS
from relaxjax.compression._rows import FEEDBACKS as FEEDBACKS
from relaxjax.compression._rows import expression as expression
from relaxjax.compression._scaling import over as over
from relaxjax.compression._scaling import over_largest as over_largest
from relaxjax.compression._sign import sign as sign
from relaxjax.compression._tern_grad import tern_grad as tern_grad
from relaxjax.compression._threshold import threshold as threshold
from relaxjax.compression._top_k import check_density as check_density
from relaxjax.compression._top_k import count_of as count_of
from relaxjax.compression._top_k import top_k as top_k
from relaxjax.compression.feedback._econtrol import econtrol as econtrol
from relaxjax.compression.feedback._ef21 import ef21 as ef21
from relaxjax.compression.feedback._ef21 import ef21_sgdm as ef21_sgdm
from relaxjax.compression.feedback._error_feedback import (
    error_feedback as error_feedback,
)
from relaxjax.compression.feedback._fed_back import fed_back as fed_back
from relaxjax.compression.feedback._intersection_feedback import (
    intersection_feedback as intersection_feedback,
)
from relaxjax.compression.feedback._loco import loco as loco
from relaxjax.compression.feedback._momentum_correction import (
    momentum_correction as momentum_correction,
)
from relaxjax.compression.formats._mx import mx as mx
from relaxjax.compression.formats._nvfp4 import nvfp4 as nvfp4

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
    "in_cosines",
    "intersection_feedback",
    "loco",
    "min_max_uint8",
    "momentum_correction",
    "mx",
    "natural",
    "nvfp4",
    "over_largest",
    "payload_bytes",
    "qsgd",
    "quantize",
    "random_block",
    "random_k",
    "rotated",
    "rotated_sign",
    "roundtrip",
    "sign",
    "tern_grad",
    "threshold",
    "top_k",
]

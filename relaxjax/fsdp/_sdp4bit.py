"""SDP4Bit: four bits for weights, and for gradients between hosts.

Source: SDP4Bit (Jia et al. 2024), of the shape of ZeRO-1 and 2: all workers hold the
weights V as they were communicated, and the owner of a slice has s besides.

    weights     V <- V + D(Q4(s - V))       groups of 2048; what is lost is in the next
    gradients   inside a host   Q8          groups of 512
                between hosts   R^T Q4 R    groups of 128, R Hadamard's of 32

Decoded, gradients are added up in float32. There is no feedback around them.

Cost: see `relaxjax.fsdp.sent_bytes`: over the slow links 4.016 bits for each weight and
4.25 for each gradient, scales counted, and 4 bytes a message, where ZeRO-1 sends 16 and
16. V is float32 here.
"""

from typing import Any

from relaxjax._core._axis import AxisName, axes_of
from relaxjax.compression import quantize, rotated


def sdp4bit(axis_name: AxisName) -> dict[str, Any]:
    """SDP4Bit's choices, as keywords of `relaxjax.fsdp.gathered`.

    Experimental: this may change in any release.

    Args:
      axis_name: the axes that the params are sharded over, outermost first. With one
        axis, the workers are one host, and gradients travel in eight bits.

    Returns:
      `weights`, `gradients`, `difference`, and for two axes or more `across`.

    Example:
      >>> from relaxjax import fsdp
      >>> axes = ("host", "device")
      >>> loss = fsdp.gathered(lambda w, x: w @ x, axes, **fsdp.sdp4bit(axes))
      >>> loss.choices.weights.name, loss.choices.across.name
      ('quantize4', 'rotated_quantize4')
    """
    bundle: dict[str, Any] = {
        "weights": quantize(4, block_size=2048),
        "gradients": quantize(8, block_size=512),
        "difference": True,
    }
    if len(axes_of(axis_name)) > 1:
        bundle["across"] = rotated(quantize(4, block_size=128), block_size=32)
    return bundle

"""Weights that lie sharded: gathered in codes, their gradients scattered in codes."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_bytes": "SentBytes sent_bytes",
        "_gathered": "Gathered gathered",
        "_gathered_state": "GatheredState",
        "_init": "init init_state whole",
        "_scan_layers": "scan_layers",
        "_sdp4bit": "sdp4bit",
        "relaxjax.collectives.wire._shards": "Shard",
    },
)

"""Parameter servers: emulated, sharded, and obedient to an order."""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_compiled_order": "CompiledOrder compiled_order",
        "_from_host": "from_host to_host",
        "_pulled": "pulled",
        "_shards": "init whole",
        "relaxjax.collectives.wire._shards": "Shard",
    },
)

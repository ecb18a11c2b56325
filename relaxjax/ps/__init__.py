"""Parameter servers: emulated, sharded, and obedient to an order."""

from relaxjax.ps._compiled_order import CompiledOrder, compiled_order
from relaxjax.ps._from_host import from_host, to_host
from relaxjax.ps._pulled import pulled
from relaxjax.ps._shards import Shard, init, whole

__all__ = [
    "CompiledOrder",
    "Shard",
    "compiled_order",
    "from_host",
    "init",
    "pulled",
    "to_host",
    "whole",
]

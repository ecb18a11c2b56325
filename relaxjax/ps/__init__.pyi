# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.collectives.wire._shards import Shard as Shard
from relaxjax.ps._compiled_order import CompiledOrder as CompiledOrder
from relaxjax.ps._compiled_order import compiled_order as compiled_order
from relaxjax.ps._from_host import from_host as from_host
from relaxjax.ps._from_host import to_host as to_host
from relaxjax.ps._pulled import pulled as pulled
from relaxjax.ps._shards import init as init
from relaxjax.ps._shards import whole as whole

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

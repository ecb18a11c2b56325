# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.collectives.wire._shards import Shard as Shard
from relaxjax.fsdp._bytes import SentBytes as SentBytes
from relaxjax.fsdp._bytes import sent_bytes as sent_bytes
from relaxjax.fsdp._gathered import Gathered as Gathered
from relaxjax.fsdp._gathered import gathered as gathered
from relaxjax.fsdp._gathered_state import GatheredState as GatheredState
from relaxjax.fsdp._init import init as init
from relaxjax.fsdp._init import init_state as init_state
from relaxjax.fsdp._init import whole as whole
from relaxjax.fsdp._scan_layers import scan_layers as scan_layers
from relaxjax.fsdp._sdp4bit import sdp4bit as sdp4bit

__all__ = [
    "Gathered",
    "GatheredState",
    "SentBytes",
    "Shard",
    "gathered",
    "init",
    "init_state",
    "scan_layers",
    "sdp4bit",
    "sent_bytes",
    "whole",
]

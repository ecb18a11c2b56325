# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.activations._all_to_all import all_to_all as all_to_all
from relaxjax.activations._f_and_g import all_reduce as all_reduce
from relaxjax.activations._f_and_g import copy as copy
from relaxjax.activations._gather_scatter import all_gather as all_gather
from relaxjax.activations._gather_scatter import reduce_scatter as reduce_scatter
from relaxjax.activations._send import send as send
from relaxjax.activations._sent_bytes import SentBytes as SentBytes
from relaxjax.activations._sent_bytes import sent_bytes as sent_bytes

__all__ = [
    "SentBytes",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "copy",
    "reduce_scatter",
    "send",
    "sent_bytes",
]

# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.activations._all_to_all import all_to_all as all_to_all
from relaxjax.activations._as_codes import all_gather_codes as all_gather_codes
from relaxjax.activations._as_codes import all_to_all_codes as all_to_all_codes
from relaxjax.activations._f_and_g import all_reduce as all_reduce
from relaxjax.activations._f_and_g import copy as copy
from relaxjax.activations._gather_scatter import all_gather as all_gather
from relaxjax.activations._gather_scatter import reduce_scatter as reduce_scatter
from relaxjax.activations._send import send as send
from relaxjax.activations._sent_bytes import SentBytes as SentBytes
from relaxjax.activations._sent_bytes import sent_bytes as sent_bytes
from relaxjax.activations._traced_bytes import traced_bytes as traced_bytes

__all__ = [
    "SentBytes",
    "all_gather",
    "all_gather_codes",
    "all_reduce",
    "all_to_all",
    "all_to_all_codes",
    "copy",
    "reduce_scatter",
    "send",
    "sent_bytes",
    "traced_bytes",
]

# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.check._compressor import compressor_laws as compressor_laws
from relaxjax.check._conservation import feedback_laws as feedback_laws
from relaxjax.check._page import MARKS as MARKS
from relaxjax.check._page import codec_line as codec_line
from relaxjax.check._page import page as page
from relaxjax.check._page import plot as plot
from relaxjax.check._page import quality_rows as quality_rows
from relaxjax.check._page import shown as shown
from relaxjax.check._relaxation import relaxation_laws as relaxation_laws
from relaxjax.check._report import Effort as Effort
from relaxjax.check._report import report_of as report_of
from relaxjax.check._subjects import subjects_of as subjects_of
from relaxjax.check._topology import topology_laws as topology_laws
from relaxjax.check._verdict import Counterexample as Counterexample
from relaxjax.check._verdict import Verdict as Verdict
from relaxjax.check._verdict import strict_json as strict_json

__all__ = [
    "Counterexample",
    "Verdict",
    "compressor_laws",
    "feedback_laws",
    "relaxation_laws",
    "topology_laws",
]

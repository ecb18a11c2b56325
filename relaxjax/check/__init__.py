"""The laws of a compressor, topology or relaxation of your own, on hard inputs.

Each function returns a `Verdict` for each law; `relaxjax check FILE.py` checks all that
a file defines, and adds bytes, codec time and a place on a plot.
"""

from relaxjax._core._lazy import door

__getattr__, __dir__, __all__ = door(
    __name__,
    {
        "_compressor": "compressor_laws",
        "_conservation": "feedback_laws",
        "_relaxation": "relaxation_laws",
        "_topology": "topology_laws",
        "_verdict": "Counterexample Verdict",
    },
    shared={
        "_page": "MARKS codec_line page plot quality_rows shown",
        "_report": "Effort report_of",
        "_subjects": "subjects_of",
        "_verdict": "strict_json",
    },
)

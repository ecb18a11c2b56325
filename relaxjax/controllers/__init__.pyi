# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.controllers._accordion import accordion as accordion
from relaxjax.controllers._ada_comm import ada_comm as ada_comm
from relaxjax.controllers._allocation import allocation as allocation
from relaxjax.controllers._allocation import rank_errors as rank_errors
from relaxjax.controllers._conducted import Conducted as Conducted
from relaxjax.controllers._conductor import Conductor as Conductor
from relaxjax.controllers._continued import continued as continued
from relaxjax.controllers._controller import Controller as Controller
from relaxjax.controllers._controller import controller as controller
from relaxjax.controllers._decidable import refuse_controllers as refuse_controllers
from relaxjax.controllers._decidable import require_decidable as require_decidable
from relaxjax.controllers._decidable import require_sums as require_sums
from relaxjax.controllers._l_greco import l_greco as l_greco
from relaxjax.controllers._noise_scale import noise_scale as noise_scale
from relaxjax.controllers._readings import NormsOfSums as NormsOfSums
from relaxjax.controllers._readings import agreement as agreement
from relaxjax.controllers._readings import code_error as code_error
from relaxjax.controllers._readings import leaf_norms as leaf_norms
from relaxjax.controllers._readings import norms_of_sums as norms_of_sums
from relaxjax.controllers._readings import of_first_process as of_first_process
from relaxjax.controllers._record import Decision as Decision
from relaxjax.controllers._record import Level as Level
from relaxjax.controllers._record import Record as Record
from relaxjax.controllers._record import load as load
from relaxjax.controllers._record import table_of as table_of
from relaxjax.controllers._spelled import DECIDED as DECIDED
from relaxjax.controllers._spelled import is_controller as is_controller
from relaxjax.controllers._spelled import spelled_controller as spelled_controller
from relaxjax.controllers._tables import without_tables as without_tables
from relaxjax.controllers._thresholds import thresholds as thresholds

__all__ = [
    "Conducted",
    "Conductor",
    "Controller",
    "Decision",
    "NormsOfSums",
    "Record",
    "accordion",
    "ada_comm",
    "agreement",
    "allocation",
    "code_error",
    "continued",
    "controller",
    "l_greco",
    "leaf_norms",
    "load",
    "noise_scale",
    "norms_of_sums",
    "of_first_process",
    "rank_errors",
    "table_of",
    "thresholds",
]

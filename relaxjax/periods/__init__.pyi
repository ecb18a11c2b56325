# Written by scripts/stubs.py from the table in __init__.py.

from relaxjax.periods._calendar import Calendar as Calendar
from relaxjax.periods._calendar import Meetings as Meetings
from relaxjax.periods._calendar import Period as Period
from relaxjax.periods._calendar import Schedule as Schedule
from relaxjax.periods._calendar import calendar as calendar
from relaxjax.periods._calendar import is_scheduled as is_scheduled
from relaxjax.periods._calendar import shifted as shifted
from relaxjax.periods._laps import laps as laps
from relaxjax.periods._lasting import lasting as lasting
from relaxjax.periods._meetings import meetings as meetings
from relaxjax.periods._qsr import qsr as qsr
from relaxjax.periods._rounds import COUNTER as COUNTER
from relaxjax.periods._rounds import Rounds as Rounds
from relaxjax.periods._rounds import rounds as rounds
from relaxjax.periods._spelled import EXAMPLE as EXAMPLE
from relaxjax.periods._spelled import spelled as spelled
from relaxjax.periods._table import post_local as post_local
from relaxjax.periods._table import stages as stages
from relaxjax.periods._table import table as table
from relaxjax.periods._together import Together as Together
from relaxjax.periods._together import together as together

__all__ = [
    "Meetings",
    "Period",
    "Schedule",
    "lasting",
    "meetings",
    "post_local",
    "qsr",
    "stages",
    "table",
]

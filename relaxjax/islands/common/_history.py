"""What the last merges of a fragment had: the measures that bounds look back at.

    measures    of all contributions of the last four merges
    members     of each member's newest contribution, one value a member

A fast member may merge many times alone. Its own moves would soon be all that four
merges have, and the more it moves the more it might: so it has one value, like anybody
else, and the others keep theirs for as long as they are alive, as far as the line says
(`absent`, `refused`). Members that are gone are forgotten after four merges.

Each line of the log has `members` as its merge found them. The next merge of the
fragment follows from that line: nobody has to read further back.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from relaxjax.islands.common._bounds import MERGES, Before, Measure
from relaxjax.islands.common._members import Member


class Seen(NamedTuple):
    """What a line of the log says for later merges.

    Attributes:
      version: the merge.
      contributed: the contributions that were merged, by name of the island.
      members: those before them; None in lines of older versions of relaxjax.
      heard: names of islands that were alive, or may have been.
    """

    version: int
    contributed: dict[str, Measure]
    members: dict[str, tuple[int, Measure]] | None
    heard: frozenset[str]


def seen_in(record: Mapping[str, Any]) -> Seen:
    """What a line says; a contribution without a length does not count."""
    contributed = {
        said["island"]: Measure(said["length"], said["weight"])
        for said in record["contributions"]
        if isinstance(said.get("length"), float)
    }
    members = record.get("bounds", {}).get("members")
    if members is not None:
        members = {name: (v, Measure(*rest)) for name, (v, *rest) in members.items()}
    files = [file.rpartition("/")[2] for file, _ in record["refused"]]
    alive = filter(None, map(Member.parse, [*record["absent"], *files]))
    heard = frozenset(member.name for member in alive)
    return Seen(record["version"], contributed, members, heard)


def before_of(lines: Sequence[Seen], every: int) -> Before:
    """What a merge looks back at.

    Args:
      lines: the fragment's last merges that can be read, newest first.
      every: versions from one merge of a fragment to its next.
    """
    members: dict[str, tuple[int, Measure]] = {}
    for line in reversed(lines):
        known = members if line.members is None else line.members
        now = {name: (line.version, one) for name, one in line.contributed.items()}
        oldest = line.version - (MERGES - 1) * every
        members = {
            name: one
            for name, one in (known | now).items()
            if name in line.heard or one[0] >= oldest
        }
    return Before([m for x in lines for m in x.contributed.values()], members)

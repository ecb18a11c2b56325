"""Which devices each process takes, decided when all have met.

    told (devices=, JAX_LOCAL_DEVICE_IDS)     those
    no launcher that says where it sits       all that it sees
    alone on its host, or shown its own       all that it sees
    one of k on its host, which sees d        d // k of them, by its number there
    likewise, d unknown                       the one of its number, as JAX does

Numbers count the devices that a process sees, from 0. CPUs do not heed them.
"""

from collections.abc import Mapping, Sequence

import jax

from relaxjax.hosts._launchers import Layout
from relaxjax.hosts._members import Member, Report

IDS = "JAX_LOCAL_DEVICE_IDS"
_OPTIONS = "jax_cuda_visible_devices", "jax_rocm_visible_devices"
_LONGEST = 600  # characters of the line that says who takes what


def told(devices: Sequence[int] | None, env: Mapping[str, str]) -> list[int] | None:
    """The devices that the argument or the environment names; None: neither does.

    Raises:
      ValueError: no numbers from 0, or one twice.
    """
    what, value = f"devices={devices}", list(devices or ())
    if devices is None:
        text = env.get(IDS, "")
        if not text.strip():
            return None
        what, parts = f"{IDS}={text!r}", [part.strip() for part in text.split(",")]
        value = [int(part) if part.isdecimal() else -1 for part in parts]
    wrong = any(type(one) is not int or one < 0 for one in value)
    if not value or wrong or len({*value}) < len(value):
        raise ValueError(
            f"join: {what}; it must be numbers of devices that this process sees, from "
            "0, each once, as in 0,1"
        )
    return value


def take_alone(devices: Sequence[int]) -> None:
    """Takes devices where there is no other process; JAX does it for several."""
    for option in _OPTIONS:
        jax.config.update(option, ",".join(map(str, devices)))


def assigned(reports: Sequence[Report]) -> tuple[Member, ...]:
    """The members of a job, in order, with the devices that each takes."""
    layouts = [report.layout for report in reports]
    one_each = all(layout is None or layout.local == 0 for layout in layouts)
    members = [
        report.member._replace(devices=_share(report.layout, one_each))
        if report.member.devices is None
        else report.member
        for report in reports
    ]
    return tuple(sorted(members, key=lambda member: member.process_id))


def _share(layout: Layout | None, one_each: bool) -> tuple[int, ...] | None:
    if layout is None or layout.own:
        return None
    here = layout.here or (1 if one_each else None)
    if here == 1:
        return None
    if here is None or layout.visible is None:
        return (layout.local,)
    share = layout.visible // here
    return (*range(layout.local * share, (layout.local + 1) * share),) or None


def platforms() -> str | None:
    """The platforms that JAX may use; None: any."""
    return jax.config.values["jax_platforms"]


def line(members: Sequence[Member], *, by_hand: bool) -> str | None:
    """Who takes what, in one line; None on CPUs, where there is nothing to take.

    Args:
      members: the processes.
      by_hand: whether no launcher says where they sit, and so nobody gives each its
        own.
    """
    plain = all(member.devices is None and not member.sees for member in members)
    if plain and by_hand and platforms() == "cpu":
        return None
    groups: dict[tuple[str, str, int], list[Member]] = {}
    for member in members:
        key = member.host, member.sees, len(member.devices or ())
        groups.setdefault(key, []).append(member)
    text = "; ".join(map(_takes, groups.values()))
    text = f"{len(members)} processes: {text}"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} ..."
    if by_hand and not plain and any(map(_shared, groups.values())):
        text += f". Several take the same: give each its own by {IDS} or devices="
    return text


def _takes(group: Sequence[Member]) -> str:
    """What processes take that are on one host and see the same."""
    ids = _ranges([member.process_id for member in group])
    taken = [number for member in group for number in member.devices or ()]
    first, several = group[0], len(group) > 1
    if not taken:
        sees = f" ({first.sees})" if first.sees else ""
        return (
            f"{ids} on {first.host}: all that {'each' if several else 'it'} sees{sees}"
        )
    each = f"{len(taken) // len(group)} each of " if several else ""
    plural = "s" if len(taken) > 1 else ""
    of = f" of {first.sees}" if first.sees else ""
    return f"{ids} on {first.host}: {each}device{plural} {_ranges(taken)}{of}"


def _shared(group: Sequence[Member]) -> bool:
    """Whether two of them take the same device."""
    taken = [number for member in group for number in member.devices or ()]
    return len(group) > 1 and (not taken or len({*taken}) < len(taken))


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in rising order, runs of them as 0-3."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}-{b}" if b > a else str(a) for a, b in runs)

"""Which one?: lines to paste run, and figures stand on the pages that they cite."""

import inspect
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax
import pytest

import relaxjax
from relaxjax import compression, plan, tasks, topology
from relaxjax._core._relaxation import Training
from relaxjax._names import RELAXATIONS
from relaxjax.plan._candidates import candidates
from relaxjax.plan._network import codecs
from relaxjax.schedule import Link
from scripts.pictures import frontier
from scripts.tables import network, points, rows

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "which_one.md").read_text()
WORKERS, STEPS = 8, 16  # of which the last ends a round of DiLoCo
LINES = dict(re.findall(r"^## ([^\n]+)\n\n```python\n(.*?)^```$", PAGE, re.M | re.S))
ROWS = json.loads(
    resources.files("relaxjax.plan").joinpath("evidence.json").read_text()
)
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def pasted(line: str) -> optax.GradientTransformation:
    """The transformation of a line, as in a program with the usual imports."""
    names: dict[str, Any] = {"optax": optax, "relaxjax": relaxjax}
    names |= {"compression": compression, "topology": topology}
    exec(line, names)
    return names["tx"]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", LINES)
def test_a_line_to_paste_trains_and_sends_no_more_than_all_reduce(name):
    tx, mesh, task = pasted(LINES[name]), relaxjax.emulate(WORKERS), tasks.digits(0)

    def train_step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(task.loss)(params, batch)
        updates, opt_state = tx.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, {"loss": loss}

    params, opt_state = relaxjax.init(tx, task.params, mesh)
    step, batches = relaxjax.data_parallel(train_step, mesh), task.batches(0, 64)
    losses = []
    for _ in range(STEPS):
        params, opt_state, metrics = step(params, opt_state, next(batches))
        losses.append(float(metrics["loss"]))
    assert losses[-1] < losses[0]
    sent = relaxjax.wire_bytes(tx, task.params, mesh)
    whole = relaxjax.wire_bytes(relaxjax.all_reduce("data"), task.params, mesh)
    assert sent == whole if "all-reduce" in name else 0 < sent < whole


def test_each_line_of_the_table_has_its_section():
    table = re.findall(r"^\| .*?\]\(#([^)]+)\)", PAGE, re.M)
    anchors = [re.sub(r"[^\w -]", "", x.lower()).replace(" ", "-") for x in LINES]
    assert table == anchors
    assert len(LINES) == 6


def numbers(text: str) -> set[float]:
    """Numbers in prose, without code and addresses; groups of three digits belong."""
    plain = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    return set(map(float, NUMBER.findall(re.sub(r"(?<=\d)[ ,](?=\d{3}\b)", "", plain))))


def cited(paragraph: str) -> set[float]:
    """Numbers on the pages that a paragraph links, and of the evidence it names."""
    found = set()
    for page, anchor in re.findall(r"\(([\w/]+\.md)#([\w-]+)\)", paragraph):
        text = (DOCS / page).read_text().replace("`", " ")
        found |= numbers(text)
        if (page, anchor) == ("planning.md", "quality"):
            named = set(re.findall(r"`([^`]+)`", paragraph)) & set(ROWS["rows"])
            for tasks_of in (ROWS["rows"][name] for name in named):
                found |= {round(abs(x["worse"]) * 100, 1) for x in tasks_of.values()}
    return found


PARAGRAPHS = [p for p in re.split(r"\n\n+", PAGE) if p.startswith("**")]
TABLE, EVIDENCE = (
    [row for row in part.splitlines() if row.startswith("| ")]
    for part in PAGE.split("\n## Evidence\n")
)


@pytest.mark.parametrize("paragraph", PARAGRAPHS + EVIDENCE, ids=lambda p: p[:30])
def test_figures_stand_on_the_pages_that_are_cited(paragraph):
    assert numbers(paragraph) <= cited(paragraph)


def test_figures_of_the_table_and_the_sections_are_in_the_evidence():
    assert len(PARAGRAPHS) > 10
    assert len(EVIDENCE) > 20
    evidence = set().union(*map(numbers, EVIDENCE))
    assert set().union(*map(numbers, TABLE + PARAGRAPHS)) <= evidence


LAB = plan.Network(
    workers=4, link=Link(1e-3, 50e6 / 8), overlap=False, codec=codecs(2e9)
)
"""Its hosts at 50 Mbit/s, as two cores encode."""


def one_answer() -> dict[str, set[str]]:
    """Labels of the best, by who says so."""
    by_rate = network.to_the_loss(rows.result("network"))
    first = {network.best(each, "relaxjax").label for each in by_rate.values()}
    front = points.points(*frontier.SOURCES)
    few = min(
        (p for p in front if p.worse is not None and p.fewer > 400), key=points.cost
    )
    model = plan.Model.of_size(3_241_600, compute=0.195)
    return {
        "lab": {label.replace(" sync_every=8", "") for label in first},
        "frontier": {few.name},
        "plan": {plan.rank(model, LAB).choice.label.replace("@two_shot", "")},
    }


def test_plan_this_page_the_lab_and_the_frontier_say_the_same():
    """The best of each is a line here, and a plan ranks the first in the lab."""
    found = one_answer()
    ranked = {candidate.label for candidate in candidates(LAB)}
    assert found["lab"] <= ranked
    for label in found["lab"]:
        assert label in PAGE
        rank = re.search(r"rank=(\d+)", label)
        assert rank
        assert f"rank={rank[1]}" in "".join(LINES.values()) or f"Rank {rank[1]}" in PAGE
    assert found["plan"] <= {f"all_reduce+{x}4+ef14" for x in ("quantize", "codebook")}
    assert "compression.error_feedback(compression.quantize(4))" in PAGE
    (few,) = found["frontier"]
    name, _, options = few.partition(" ")
    period = re.search(r"sync_every=(\d+)", options)
    assert period
    said = f"`{name.partition('+')[0]}` in four bits every {period[1]} steps"
    assert said in " ".join(PAGE.split())


def groups_of(picture: str) -> dict[str, list[str]]:
    """Names in small type on a picture, by the words above or before them."""
    text = (DOCS / "pictures" / f"{picture}.svg").read_text()
    groups: dict[str, list[str]] = {}
    group = ""
    for attributes, content in re.findall(r"<text ([^>]*)>([^<]*)</text>", text):
        if re.search('font-size="1[68]"', attributes):
            group = content
        if 'class="s m"' in attributes:
            before, colon, names = content.rpartition(": ")
            group = before if colon else group
            groups.setdefault(group, []).extend(re.findall(r"\w+", names))
    return groups


def side_of(name: str) -> str:
    """The side of the optimizer that a relaxation of the table marks."""
    training = Training(optax.sgd(0.1), 0.1, 100, WORKERS)
    tx = RELAXATIONS[name].build("data", training)
    params = {"w": np.ones((32, 16), np.float32)}
    found = relaxjax.explain(tx, params, relaxjax.emulate(WORKERS))
    return found.relaxations[-1]["side"]


def test_the_picture_of_sides_is_right():
    groups = groups_of("sides")
    before, late, after, around, instead = groups.values()
    for sides, names in {("gradients", "momenta"): before, ("models",): after}.items():
        assert {name for name in names if side_of(name) not in sides} == set()
    for name in (*before, *late, *after, *around, *instead):
        first, *others = inspect.signature(getattr(relaxjax, name)).parameters
        assert (first == "inner") == (name in around), name
        is_one = first == "optimizer" or "learning_rate" in others
        assert is_one == (name in instead or name == "slow_momentum"), name


def test_the_picture_of_relaxations_names_what_there_is():
    for names in groups_of("relaxations").values():
        assert names
        for name in names:
            assert hasattr(relaxjax, name), name

"""`relaxjax train --order`: from the task's program, and kept by the compiled one."""

import io
import json

import pytest
from rich.console import Console

from relaxjax import schedule
from relaxjax.cli.common._known import OrderName
from relaxjax.cli.options._train import TrainOptions
from relaxjax.cli.training import _checked, _order_report, _prepare, _training
from relaxjax.ps import CompiledOrder
from relaxjax.tasks import TASKS

NAMES = ("tac", "tic", "best", "random", "layer")


def graph_of(task):
    batch = next(task.batches(0, 8))
    return schedule.Graph.from_loss(task.loss, task.params, batch)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", NAMES)
def test_orders_are_those_of_the_schedule(name):
    task = TASKS["digits"](0)
    graph = graph_of(task)
    order = _order_report.find(name, task, 8, 3)
    expected = {
        "tac": schedule.tac,
        "tic": schedule.tic,
        "best": schedule.best,
        "random": lambda graph: schedule.random_order(graph, seed=3),
        "layer": schedule.layer_order,
    }[name](graph)
    assert list(order.names) == expected


@pytest.mark.long
def test_a_run_keeps_its_order_and_shows_it(tmp_path, capsys):
    options = TrainOptions(
        relaxation="parameter_server",
        workers=4,
        steps=2,
        order=OrderName.RANDOM,
        seed=1,
        out=tmp_path,
        no_baseline=True,
    )
    job = _prepare.prepare(options)
    _training.run(job)
    shown = capsys.readouterr().out
    rows = [line.split("│")[2:5] for line in shown.splitlines() if line.count("│") == 5]
    rows = [[cell.strip() for cell in row] for row in rows]
    assert job.order
    assert [row[0] for row in rows] == list(job.order.names)
    assert [row[1] for row in rows] == list(job.order.names)
    assert [row[2] for row in rows] == list(job.order.names)[::-1]
    events = json.loads((tmp_path / "order.json").read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    tracks = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert any("simulated" in track for track in tracks)
    assert any("compiled" in track for track in tracks)


@pytest.mark.long
def test_emulated_workers_have_no_compiled_order(tmp_path, capsys):
    options = TrainOptions(
        relaxation="parameter_server",
        workers=17,
        steps=1,
        order=OrderName.TAC,
        out=tmp_path,
        no_baseline=True,
    )
    _training.run(_prepare.prepare(options))
    assert "for workers on devices of one process" in capsys.readouterr().out
    assert not (tmp_path / "order.json").exists()


def test_relaxations_without_an_order():
    options = TrainOptions(relaxation="all_reduce", order=OrderName.TAC)
    message = "--order tac: the transfers of all_reduce .* parameter_server"
    with pytest.raises(ValueError, match=message):
        _checked.check(options)


def test_the_table_shows_what_differs():
    order = _order_report.Order("tic", graph_of(TASKS["digits"](0)), ("a", "b"))
    table = _order_report.table(order, CompiledOrder(("b", "a"), ("a", "b")))
    written = io.StringIO()
    Console(width=100, file=written).print(table)
    (first, _) = [
        [cell.strip() for cell in line.split("│")[1:5]]
        for line in written.getvalue().splitlines()
        if line.count("│") == 5
    ]
    assert first == ["1", "a", "b", "a"]

"""The scripts of findings/ have their form, and scripts/findings.py tells results.

No script of findings/ runs here: they need a package index.
"""

import re
import subprocess
from pathlib import Path

import pytest

from scripts import findings

HOLDS = """# pinned: other==9.9
set -eu
false install real==1.2 more-real==3.4.post1 || echo saw 7
echo holds
"""
CHANGED = "set -eu\necho fake==0.1\necho 'changed: expected 7'\nexit 1\n"
SCRIPTS = sorted(findings.FOLDER.glob("*.sh"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kept.sh").write_text(HOLDS)
    (tmp_path / "moved.sh").write_text(CHANGED)
    return tmp_path


def rows_of(text: str) -> dict[str, list[str]]:
    """The table's cells, by the finding's name."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("finding "))
    rows = [re.split(r"  +", line) for line in lines[start + 1 :]]
    return {row[0]: row[1:] for row in rows}


def test_the_table_says_which_of_two_changed(folder, capsys):
    assert findings.main([], folder) == 1
    shown = capsys.readouterr().out
    rows = rows_of(shown)
    assert rows["kept"][0] == "holds"
    assert rows["kept"][2] == "real 1.2, more-real 3.4.post1"
    assert rows["moved"][::2] == ["changed", "fake 0.1"]
    assert "saw 7" in shown
    assert "expected 7" in shown


def test_those_that_are_named_run_alone(folder, capsys):
    assert findings.main(["kept"], folder) == 0
    assert list(rows_of(capsys.readouterr().out)) == ["kept"]
    with pytest.raises(SystemExit, match=r"no finding lost; there are: kept, moved"):
        findings.main(["lost"], folder)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("echo holds; exit 0", "holds"),
        ("echo 'changed: expected 1'; exit 1", "changed"),
        ("echo no network; exit 1", "failed"),
        ("echo holds; exit 1", "failed"),
        ("exit 0", "failed"),
    ],
)
def test_only_a_script_that_says_so_holds(tmp_path, capsys, body, said):
    (tmp_path / "one.sh").write_text(body + "\n")
    assert findings.main([], tmp_path) == int(said != "holds")
    assert rows_of(capsys.readouterr().out)["one"][0] == said


def test_a_script_without_time_left_fails_and_does_not_start(tmp_path, capsys):
    (tmp_path / "late.sh").write_text(f"touch '{tmp_path}/started'\necho holds\n")
    assert findings.main(["--minutes", "0"], tmp_path) == 1
    assert rows_of(capsys.readouterr().out)["late"][0] == "failed"
    assert not (tmp_path / "started").exists()


def test_folders_that_a_script_leaves_are_removed(tmp_path):
    (tmp_path / "untidy.sh").write_text("mktemp -d\n")
    status, text = findings.output(tmp_path / "untidy.sh", 600)
    assert status == 0
    assert text.strip()
    assert not Path(text.strip()).exists()


def test_a_script_that_takes_too_long_is_ended(tmp_path):
    (tmp_path / "long.sh").write_text("sleep 600 & wait\n")
    assert findings.output(tmp_path / "long.sh", 0.2) == (None, "")


def test_there_are_findings_of_several_packages():
    packages = {findings.pins(script).split()[0] for script in SCRIPTS}
    assert len(SCRIPTS) >= 6
    assert len(packages) >= 4


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_each_finding_has_the_form_of_its_readme(script):
    text = script.read_text()
    comment, code = re.split(r"^set -eu$", text, maxsplit=1, flags=re.M)
    for part in ("# What: ", "# Hurt: ", "# Guess: "):
        assert comment.count(part) == 1, f"{script.name} says no {part}"
    assert "mktemp -d" in code
    assert 'print("holds")' in code
    assert "relaxjax" not in text
    installed = code.split(" install ")[1].split("\n\n")[0]
    for word in re.findall(r"[^\s\\]+", installed):
        assert word == "-qq" or findings.PIN.fullmatch(word), f"{word}: no pin"
    subprocess.run(["sh", "-n", str(script)], check=True)
    readme = (findings.FOLDER / "README.md").read_text()
    assert f"| `{script.stem}` |" in readme, f"{script.stem} has no row in the README"

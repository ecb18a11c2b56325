"""What is published: addresses, a README that reads elsewhere, tests in the archive."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOLD = tomllib.loads((ROOT / "pyproject.toml").read_text())
URLS = TOLD["project"]["urls"]
HATCH = TOLD["tool"]["hatch"]
HOOK = HATCH["metadata"]["hooks"]["fancy-pypi-readme"]
IN_ARCHIVE = HATCH["build"]["targets"]["sdist"]["include"]
ALWAYS = {".gitignore", "pyproject.toml"}  # hatchling adds them
OF_A_CLONE = {".editorconfig", ".github", ".pre-commit-config.yaml"}


def published() -> str:
    """The README as a package index shows it."""
    text = "".join((ROOT / part["path"]).read_text() for part in HOOK["fragments"])
    for change in HOOK["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    return text


def test_the_addresses_are_of_one_repository():
    assert set(URLS) == {
        "Homepage",
        "Documentation",
        "Source",
        "Changelog",
        "Issues",
    }
    assert all(url.startswith(URLS["Source"]) for url in URLS.values())
    for url in URLS.values():
        _, blob, path = url.partition("/blob/main/")
        assert not blob or (ROOT / path).is_file()
    assert f'repository-code: "{URLS["Source"]}"' in (ROOT / "CITATION.cff").read_text()


def test_the_published_readme_is_told_at_build():
    assert TOLD["project"]["dynamic"] == ["readme"]
    needed = [re.split(r"\W*>=", x)[0] for x in TOLD["build-system"]["requires"]]
    assert "hatch-fancy-pypi-readme" in needed


def test_links_of_the_published_readme_are_addresses_of_files():
    ours = (ROOT / "README.md").read_text()
    link = re.compile(r"(!?)\[[^\]]*\]\(([^)\s]+)\)")
    before, after = link.findall(ours), link.findall(published())
    assert len(before) == len(after) > 20
    raw = URLS["Source"].replace("github.com", "raw.githubusercontent.com")
    for (picture, relative), (_, address) in zip(before, after, strict=True):
        base = f"{raw}/main" if picture else f"{URLS['Source']}/blob/main"
        elsewhere = re.match("https?://|#", relative)
        assert address == (relative if elsewhere else f"{base}/{relative}")


def test_nothing_of_the_readme_but_its_links_changes():
    changed = re.sub(r"\]\(https?:[^)]*?/main/", "](", published())
    assert changed == (ROOT / "README.md").read_text()


def test_the_archive_has_what_there_is():
    assert all(pattern.startswith("/") for pattern in IN_ARCHIVE)
    assert [x for x in IN_ARCHIVE if not (ROOT / x[1:]).exists()] == []


def test_the_archive_has_every_file_of_the_repository():
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: this may be the unpacked archive")
    asked = ["git", "ls-files"]
    listed = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    tops = {path.partition("/")[0] for path in listed.stdout.splitlines()}
    assert tops - {x[1:] for x in IN_ARCHIVE} - OF_A_CLONE == ALWAYS

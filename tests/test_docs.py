"""Documents: their Python runs, their examples print what is shown, their links lead somewhere."""

import doctest
import itertools
import re
import tomllib

import pytest

from alloccheck.analysis.contracts import load_contracts
from alloccheck.cli.check import user_contracts
from alloccheck.config import Config, load_config
from documents import ROOT, blocks, comparable, run_python

DOCUMENTS = sorted([*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")])
SESSION = re.compile(r"^>>> ", re.MULTILINE)


def named(path):
    return str(path.relative_to(ROOT))


def python_of(document):
    return [b for b in blocks(document) if b.language == "python"]


@pytest.mark.parametrize(
    "document",
    [d for d in DOCUMENTS if d.name != "README.md" and python_of(d)],
    ids=named,
)
def test_python_blocks_run_in_order(document, tmp_path):
    """A document's blocks are one program, from its first line to its last."""
    parts = []
    for block in python_of(document):
        if block.fragment:
            compile(block.text, f"{named(document)}:{block.line}", "exec")
        elif not SESSION.search(block.text):
            parts.append(block)
    printed = comparable(run_python([b.text for b in parts], tmp_path, "example.py"))
    position = 0
    for block in parts:
        if block.output is not None:
            shown = comparable(block.output)
            found = printed.find(shown, position)
            assert found >= 0, f"{named(document)}:{block.line}: not printed: {shown}"
            position = found + len(shown)


@pytest.mark.parametrize(
    "document", [d for d in DOCUMENTS if SESSION.search(d.read_text())], ids=named
)
def test_sessions_print_what_is_shown(document):
    result = doctest.testfile(
        str(document), module_relative=False, optionflags=doctest.ELLIPSIS, verbose=False
    )
    assert result.attempted and not result.failed


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_lead_somewhere(document):
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", document.read_text(), flags=re.M | re.S)
    for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", text):
        assert (document.parent / target).exists(), f"{named(document)}: {target}"


def table_under(text, heading):
    """The rows of the first table behind a line, each as its cells' words in code style."""
    lines = text[text.index(heading) :].splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("|---"))
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 1 :])
    return [[re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[1:-1]] for row in rows]


def test_the_page_on_dependencies_names_those_of_the_package():
    page = (ROOT / "docs" / "dependencies.md").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    def names(requirements):
        return {re.match(r"[\w-]+", one).group() for one in requirements}

    run_time = {row[0][0] for row in table_under(page, "At run time:")}
    assert run_time == names(project["dependencies"]) | {"llvmlite", "numpy"}
    extras = {row[0][0]: set(row[1]) for row in table_under(page, "Extras:")}
    assert extras == {
        extra: names(requirements)
        for extra, requirements in project["optional-dependencies"].items()
    }


SETTINGS = [
    pytest.param(block, id=f"{named(document)}:{block.line}")
    for document in DOCUMENTS
    for block in blocks(document)
    if block.language == "toml" and "[tool.alloccheck" in block.text
]


@pytest.mark.parametrize("block", SETTINGS)
def test_shown_settings_are_accepted(block, tmp_path):
    (tmp_path / "pyproject.toml").write_text(block.text)
    config = load_config(tmp_path)
    assert config != Config()
    load_contracts(user_contracts(config))

"""Documents: their Python runs, their examples print what is shown, their links lead somewhere."""

import doctest
import re

import pytest

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

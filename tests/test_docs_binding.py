"""The snippets of the documents on certificates, C callbacks and parity run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"
FILES = ("c-callbacks.md", "certificates.md", "parity.md")


def snippets(language):
    for name in FILES:
        text = (DOCS / name).read_text()
        for i, found in enumerate(re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)):
            yield pytest.param(found, id=f"{name}-{i}")


@pytest.mark.parametrize("snippet", list(snippets("python")))
def test_python(snippet, tmp_path):
    # From a file, because sources are a part of certificates; in a process of its own, because they
    # count what is loaded and change settings.
    file = tmp_path / "snippet.py"
    file.write_text(snippet)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("snippet", list(snippets("c")))
def test_c(snippet, tmp_path):
    file = tmp_path / "snippet.c"
    file.write_text(snippet)
    command = ["cc", "-c", "-Wall", "-Werror", "-o", tmp_path / "snippet.o", file]
    subprocess.run(command, check=True, stdout=sys.stderr)


def test_every_document_has_snippets():
    assert {one.id.rsplit("-", 1)[0] for one in snippets("python")} == set(FILES)

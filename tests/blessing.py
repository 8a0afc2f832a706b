"""Stored renderings: compare with a file under ``renderings/``, or rewrite it by ``--bless``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

RENDERINGS = Path(__file__).parent / "renderings"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless", action="store_true", help="rewrite the stored renderings with what is rendered"
    )


@pytest.fixture
def blessed(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with the stored file of a name; with ``--bless``, store it."""

    def compare(name: str, text: str) -> None:
        file = RENDERINGS / name
        if request.config.getoption("--bless"):
            file.parent.mkdir(exist_ok=True)
            file.write_text(text + "\n", encoding="utf-8")
        assert file.exists(), f"no rendering {name}; store it with --bless after reading it"
        assert text + "\n" == file.read_text(encoding="utf-8")

    return compare

"""Runs one measurement in a fresh process and returns what it printed, as JSON.

Knows processes; nothing of what is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PREFIX = "RESULT "


def in_fresh_process(
    module: str, *arguments: str, python: str = sys.executable, **environment: str
) -> Any:
    """Run ``python -m module arguments...`` and return its result.

    Parameters
    ----------
    module : str
        A module of this package that calls `report_result`.
    *arguments : str
        Its command line.
    python : str
        The interpreter.
    **environment : str
        Further environment variables.

    Raises
    ------
    RuntimeError
        With the end of its output, when it fails or reports nothing.
    """
    paths = [str(ROOT / "src"), str(ROOT)]
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    done = subprocess.run(
        [python, "-m", module, *arguments],
        env=settings,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(PREFIX):
            return json.loads(line.removeprefix(PREFIX))
    raise RuntimeError(f"{module} {' '.join(arguments)} failed:\n{done.stderr[-3000:]}")


def report_result(data: Any) -> None:
    """Print a result for `in_fresh_process`."""
    print(PREFIX + json.dumps(data), flush=True)

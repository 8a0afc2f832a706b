"""Contracts against machine code, in a process that has loaded nothing else.

What other tests load, such as a threading layer, would bring symbols and hooks of its own.
"""

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent / "contracts_against_code.py"


def test_contracts_agree_with_the_code():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TESTS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    # A dot for each that passed; the last line only says how many in percent.
    tests = TESTS.read_text().count("\ndef test_")
    assert done.stdout.count(".") >= tests > 5, done.stdout

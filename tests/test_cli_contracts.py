"""Contracts in the settings reach the verdict of `alloccheck check`."""

import subprocess
import sys

import pytest

from alloccheck.cli.check import user_contracts
from alloccheck.config import Config
from alloccheck.errors import ContractError

PROGRAM = "import math\n\n\ndef f(x):\n    return math.sin(x)\n"
SETTINGS = """
[tool.alloccheck.signatures]
"waves:f" = ["float64(float64)"]
"""
CONTRACT = """
[[tool.alloccheck.contracts]]
symbol = "sin"
effects = ["allocate"]
override = true
reason = "this board's sin keeps a log"
source = "board.h:7"
"""


def check(folder, *command):
    return subprocess.run(
        [sys.executable, "-m", "alloccheck", *(command or ("check", "waves:f"))],
        cwd=folder,
        capture_output=True,
        text=True,
    )


def test_a_contract_in_the_settings_decides(tmp_path):
    (tmp_path / "waves.py").write_text(PROGRAM)
    (tmp_path / "pyproject.toml").write_text(SETTINGS)
    assert check(tmp_path).returncode == 0
    (tmp_path / "pyproject.toml").write_text(SETTINGS + CONTRACT)
    done = check(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "this board's sin keeps a log" in done.stdout


def test_certificates_rest_on_the_same_contracts_as_checks(tmp_path):
    (tmp_path / "waves.py").write_text(PROGRAM)
    (tmp_path / "pyproject.toml").write_text(SETTINGS + CONTRACT)
    for command in ("show", "verify"):
        done = check(tmp_path, "certificate", command, "waves:f")
        assert done.returncode == 1, done.stdout + done.stderr
        assert "not proved" in done.stdout.lower()


def test_a_decorator_says_what_its_function_may_do_at_the_first_call(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.alloccheck]\nfirst_call = "allow"\n')
    (tmp_path / "products.py").write_text(
        "import numpy as np\nfrom alloccheck import check_allocs\n\n\n"
        "@check_allocs('f8(f8[::1], f8[::1])', first_call='forbid')\n"
        "def strict(a, b):\n    return np.dot(a, b)\n\n\n"
        "@check_allocs('f8(f8[::1], f8[::1])')\n"
        "def usual(a, b):\n    return np.dot(a, b)\n"
    )
    done = check(tmp_path, "check", "products:strict")
    assert done.returncode == 1, done.stdout + done.stderr
    assert check(tmp_path, "check", "products:usual").returncode == 0


def test_a_contract_without_a_symbol_is_refused():
    with pytest.raises(ContractError, match="needs a `symbol`"):
        user_contracts(Config(contracts=({"effects": [], "reason": "r", "source": "s"},)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ('"allocate"', "contract `sin`: `effects`"),
        ('["alocate"]', "contract `sin`: `effects`: expected one of `allocate`"),
    ],
)
def test_a_wrong_contract_is_a_wrong_question(wrong, message, tmp_path):
    (tmp_path / "waves.py").write_text(PROGRAM)
    text = SETTINGS + CONTRACT.replace('["allocate"]', wrong)
    (tmp_path / "pyproject.toml").write_text(text)
    done = check(tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: pyproject.toml: " + message)
    assert "Traceback" not in done.stderr

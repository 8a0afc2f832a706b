"""Python imports this at start-up where an audit has put its folder on the path.

So an audit sees what the program's other Python processes compile. It costs them nothing until
they import Numba, and then runs the `sitecustomize` that they would have had.
"""

import importlib
import importlib.abc
import importlib.util
import os
import sys

_HERE = os.path.realpath(os.path.dirname(__file__))  # noqa: PTH120


class _Numba(importlib.abc.MetaPathFinder):
    """Begins to record when the process imports Numba, or what of ours imports it first."""

    def find_spec(self, fullname, path, target=None):  # type: ignore[no-untyped-def]
        if fullname not in ("numba", "alloccheck.compile"):
            return None
        sys.meta_path.remove(self)
        folder = os.environ.get("ALLOCCHECK_AUDIT", "")
        try:
            importlib.import_module("alloccheck.audit.children").begin(folder)
        except Exception as error:
            # Another environment, or an audit that is over: the process goes on, and it is said.
            try:
                with open(f"{folder}/{os.getpid()}.unseen", "w") as file:  # noqa: PTH123
                    file.write(f"{type(error).__name__}: {error}")
            except OSError:
                pass
        return importlib.util.find_spec(fullname)


sys.path[:] = [one for one in sys.path if os.path.realpath(one or ".") != _HERE]
if os.environ.get("ALLOCCHECK_AUDIT"):
    sys.meta_path.insert(0, _Numba())
_this = sys.modules.pop("sitecustomize")
try:
    importlib.import_module("sitecustomize")
except ImportError as missing:
    if missing.name != "sitecustomize":
        raise
    # The import system expects to find what it has loaded.
    sys.modules["sitecustomize"] = _this

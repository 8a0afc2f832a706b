"""Line tables for every function that a world lowers, without changing its machine code.

LLVM keeps `DILocation` chains through inlining; reading them back gives static backtraces from an
allocation to the user's line. Only line tables are emitted (``LineTablesOnly``): no variables,
hence no code to keep them alive. The format is LLVM's source-level debug metadata
(https://llvm.org/docs/SourceLevelDebugging.html).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alloccheck.compile import numba_internals  # noqa: F401  (the version gate)

# isort: split
from numba.core import debuginfo


class LineTables(debuginfo.DIBuilder):  # type: ignore[misc]
    """Numba's debug-info builder, cut down to lines."""

    def __init__(self, module: Any, filepath: str, cgctx: Any, directives_only: bool) -> None:
        self.module = module
        self.filepath = str(Path(filepath).absolute())
        self.difile = self._di_file()
        self.subprograms: list[Any] = []
        self.cgctx = cgctx
        self.emission_kind = "LineTablesOnly"
        self.initialize()

    def mark_variable(self, *args: Any, **kwargs: Any) -> None:
        """Emit nothing: a described variable would have to be kept alive."""

    def _di_subroutine_type(self, line: int, function: Any, argmap: Any) -> Any:
        return self.module.add_debug_info(
            "DISubroutineType", {"types": self.module.add_metadata([])}
        )

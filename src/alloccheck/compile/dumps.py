"""What Numba's settings ask to be printed of a compile: IR, LLVM IR, assembly, optimisations.

Most of it Numba prints itself. Here is what our own linking and code generation must print in its
place, and whether anything is asked for at all. Changes nothing of what is compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alloccheck.compile.llvm_contexts import read_bitcode

# isort: split
from numba.core import codegen, config

if TYPE_CHECKING:
    import llvmlite.binding as ll

    from alloccheck.compile.contexts import WorldLibrary

_PRINTING = (
    "DUMP_BYTECODE",
    "DUMP_CFG",
    "DUMP_IR",
    "DUMP_SSA",
    "DUMP_LLVM",
    "DUMP_FUNC_OPT",
    "DUMP_OPTIMIZED",
    "DUMP_ASSEMBLY",
    "DEBUG_TYPEINFER",
    "DEBUG_INLINE_CLOSURE",
    "DEBUG_ARRAY_OPT",
    "DEBUG_ARRAY_OPT_RUNTIME",
    "DEBUG_ARRAY_OPT_STATS",
    "PARALLEL_DIAGNOSTICS",
    "DIFF_IR",
    "ANNOTATE",
    "HTML",
)
"""Settings under which a compile prints."""

_PASSES = ("DEBUG_PRINT_BEFORE", "DEBUG_PRINT_AFTER", "DEBUG_PRINT_WRAP")
"""Settings that name compiler passes, or none."""


def asked_for() -> bool:
    """Tell whether a compile prints something, so that it must not be brought back from a cache."""
    return any(getattr(config, name, 0) for name in _PRINTING) or any(
        getattr(config, name, "none") != "none" for name in _PASSES
    )


def before_linking(library: WorldLibrary) -> None:
    """Print a library's own code, each function optimised by itself.

    Parameters
    ----------
    library : WorldLibrary
        Not linked yet.
    """
    if config.DUMP_FUNC_OPT:
        codegen.dump(f"FUNCTION OPTIMIZED DUMP {library.name}", str(library._final_module), "llvm")


def optimised(library: WorldLibrary) -> None:
    """Print a library's code as it was linked and optimised.

    Parameters
    ----------
    library : WorldLibrary
        Linked and optimised.
    """
    if config.DUMP_OPTIMIZED:
        codegen.dump(f"OPTIMIZED DUMP {library.name}", str(library._final_module), "llvm")


def timed(library: WorldLibrary) -> None:
    """Run LLVM's passes on a library for the times that Numba keeps of them.

    Parameters
    ----------
    library : WorldLibrary
        Takes up the times: ``recorded_timings``.
    """
    library._ensure_finalized()
    with library._recorded_timings.record_legacy("Finalize object"):
        # Generating code changes a module.
        library._codegen._tm.emit_object(read_bitcode(library._final_module.as_bitcode()))


def closed(library: WorldLibrary, module: ll.ModuleRef, machine: Any) -> None:
    """Print the assembly of an artifact.

    Parameters
    ----------
    library : WorldLibrary
        What it was closed from.
    module : llvmlite.binding.ModuleRef
        Closed; not changed.
    machine : llvmlite.binding.TargetMachine
        What generates its code.
    """
    if config.DUMP_ASSEMBLY:
        # Generating code changes a module.
        copy = read_bitcode(module.as_bitcode())
        codegen.dump(f"ASSEMBLY {library.name}", machine.emit_assembly(copy), "asm")

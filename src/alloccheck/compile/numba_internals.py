"""The gate to Numba's private parts: which version was verified, and what must be as it was.

Everything private that the `compile` floor touches is listed in `REQUIRED`; importing this module
checks the list and refuses, clearly, a Numba that it does not know. The modules beside it
(`isolation`, `contexts`, `world`, `lines`) build on these names and import them from Numba only
after this gate has passed. Knows nothing of analysis or reports.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import numba

from alloccheck.errors import UsageError

VERIFIED_NUMBA = ("0.68",)
"""Minor versions of Numba on which every entry of `REQUIRED` was tried."""

ENVIRONMENT_PREFIX = "_ZN08NumbaEnv"
"""How symbols begin that hold a function's environment."""

INHERITED_FLAGS = ("nrt", "fastmath", "error_model", "forceinline")
"""Flags that a callee takes from whoever compiles it (``CPUTargetOptions.finalize``)."""

TEMPLATE_CACHES = ("_impl_cache", "_overload_cache")
"""Class attributes of templates that hold results keyed by context and types."""

TEMPLATE_VARIANT_CACHES = ("_compiled_overloads", "_inline_overloads")
"""Class attributes of templates that hold results keyed by argument types alone."""

IMPORTED_ON_DEMAND = (
    "numba.core.boxing",
    "numba.core.inline_closurecall",
    "numba.core.optional",
    "numba.core.runtime.context",
    "numba.core.typing.arraydecl",
    "numba.core.typing.bufproto",
    "numba.core.typing.cffi_utils",
    "numba.core.typing.cmathdecl",
    "numba.core.typing.collections",
    "numba.core.typing.dictdecl",
    "numba.core.typing.enumdecl",
    "numba.core.typing.listdecl",
    "numba.core.typing.mathdecl",
    "numba.core.typing.setdecl",
    "numba.cpython.cmathimpl",
    "numba.cpython.enumimpl",
    "numba.cpython.heapq",
    "numba.cpython.iterators",
    "numba.cpython.numbers",
    "numba.cpython.printimpl",
    "numba.cpython.rangeobj",
    "numba.cpython.setobj",
    "numba.cpython.tupleobj",
    "numba.cpython.unicode",
    "numba.experimental.function_type",
    "numba.experimental.jitclass.base",
    "numba.experimental.structref",
    "numba.misc.cffiimpl",
    "numba.misc.gdb_hook",
    "numba.misc.literal",
    "numba.np.arraymath",
    "numba.np.linalg",
    "numba.np.npdatetime",
    "numba.np.npyimpl",
    "numba.np.polynomial.polynomial_core",
    "numba.np.polynomial.polynomial_functions",
    "numba.np.random.generator_methods",
    "numba.np.random.legacy",
    "numba.np.types.datetime_registry",
    "numba.np.ufunc.parallel",
    "numba.np.unsafe.ndarray",
    "numba.parfors.parfor",
    "numba.stencils.stencilparfor",
    "numba.typed.dictimpl",
    "numba.typed.listobject",
    "numba.typed.setobject",
    "numba.typed.typeddict",
    "numba.typed.typedlist",
    "numba.typed.typedset",
)
"""Modules that Numba imports when it first compiles, some of which make dispatchers then."""

REQUIRED: tuple[tuple[str, str], ...] = (
    ("numba.core.types", "Dispatcher.dispatcher"),
    ("numba.core.types", "Dispatcher.unify"),
    ("numba.core.types", "Dispatcher.can_convert_to"),
    ("numba.core.types", "RecursiveCall.add_overloads"),
    ("numba.core.utils", "get_nargs_range"),
    ("numba.core.cpu", "CPUContext.create_cfunc_wrapper"),
    ("numba.core.base", "BaseContext.cast"),
    ("numba.core.base", "BaseContext.get_function"),
    ("numba.core.dispatcher", "Dispatcher.get_function_type"),
    ("numba.core.dispatcher", "Dispatcher.get_compile_result"),
    ("numba.core.types", "BaseFunction.get_impl_key"),
    ("numba.core.types", "BoundFunction.get_call_type"),
    ("numba.core.types.abstract", "_typecache"),
    ("numba.core.targetconfig", "_FlagsStack"),
    ("numba.core.targetconfig", "ConfigStack.top_or_none"),
    ("numba.core.typing.context", "CallStack.register"),
    ("numba.core.typing.context", "CallFrame"),
    ("numba.core.typing.context", "_ResolveCache"),
    ("numba.core.typing.context", "CallStack.lookup_resolve_cache"),
    ("numba.core.base", "BaseContext.call_unresolved"),
    ("numba.core.funcdesc", "qualifying_prefix"),
    ("numba.core.typing.context", "BaseContext._lookup_global"),
    ("numba.core.typing.templates", "_OverloadFunctionTemplate._get_impl"),
    ("numba.core.typing.templates", "_IntrinsicTemplate.generic"),
    ("numba.core.typing.templates", "_OverloadAttributeTemplate"),
    ("numba.core.typing.templates", "_OverloadMethodTemplate"),
    ("numba.core.typeinfer", "TypeInferer.return_types_from_partial"),
    ("numba.core.dispatcher", "_FunctionCompiler._customize_flags"),
    ("numba.core.dispatcher", "Dispatcher._compile_for_args"),
    ("numba.core.dispatcher", "_DispatcherBase.add_overload"),
    ("numba.core.dispatcher", "_DispatcherBase._compile_for_args"),
    ("numba.core.event", "register"),
    ("numba.core.event", "unregister"),
    ("numba.np.ufunc.ufuncbuilder", "UFuncDispatcher.compile"),
    ("numba.core.ccallback", "CFunc.compile"),
    ("numba.core.dispatcher", "LiftedCode"),
    ("numba.core.dispatcher", "LiftedWith"),
    ("numba.core.dispatcher", "ObjModeLiftedWith"),
    ("numba.core.registry", "CPUDispatcher.__init__"),
    ("numba.core.registry", "CPUDispatcher.compile"),
    ("numba.core.registry", "CPUTarget._toplevel_typing_context"),
    ("numba.core.registry", "CPUTarget._toplevel_target_context"),
    ("numba.core.registry", "CPUTarget.typing_context"),
    ("numba.core.registry", "CPUTarget.target_context"),
    ("numba.core.codegen", "JITCPUCodegen.insert_unresolved_ref"),
    ("numba.core.codegen", "JITCodeLibrary._optimize_final_module"),
    ("numba.core.codegen", "JITCodeLibrary._optimize_functions"),
    ("numba.core.codegen", "JITCodeLibrary._get_module_for_linking"),
    ("numba.core.codegen", "JITCodeLibrary.add_ir_module"),
    ("numba.core.codegen", "JITCodeLibrary.add_llvm_module"),
    ("numba.core.codegen", "remove_redundant_nrt_refct"),
    ("numba.core.compiler_lock", "global_compiler_lock._lock"),
    ("numba.core.codegen", "CPUCodegen._pass_builder"),
    ("numba.core.datamodel", "default_manager"),
    ("numba.core.datamodel.manager", "DataModelManager.lookup"),
    ("numba.core.codegen", "CPUCodegen._module_pass_manager"),
    ("numba.core.codegen", "CPUCodegen._function_pass_manager"),
    ("numba.core.cpu", "CPUContext.init"),
    ("numba.core.cpu", "CPUContext.create_cpython_wrapper"),
    ("numba.core.base", "BaseContext.compile_subroutine"),
    ("numba.core.base", "BaseContext._compile_subroutine_no_cache"),
    ("numba.core.errors", "loc_info"),
    ("numba.core.callconv", "CPUCallConv.call_function"),
    ("numba.core.debuginfo", "DIBuilder._di_subroutine_type"),
    ("numba.core.lowering", "get_func_body_first_lineno"),
    ("numba.core.lowering", "Lower.pre_block"),
    ("numba.core.lowering", "Lower.pre_lower"),
    ("numba.core.lowering", "Lower.lower_inst"),
    ("numba.core.lowering", "Lower.lower_yield"),
    ("numba.core.lowering", "Lower.lower_try_dynamic_raise"),
    ("numba.core.typed_passes", "NativeLowering.lowering_class"),
    ("numba.core.environment", "lookup_environment"),
    ("numba.core.target_extension", "target_override"),
    ("numba.core.target_extension", "dispatcher_registry"),
    ("numba.core.target_extension", "jit_registry"),
    ("numba.core.runtime", "rtsys"),
    ("numba._dynfunc", "make_function"),
    ("numba.np.ufunc.dufunc", "DUFunc._compile_for_argtys"),
    ("numba.np.ufunc.gufunc", "GUFunc.build_ufunc"),
    ("numba.stencils.stencil", "StencilFunc"),
    ("numba.experimental.jitclass.boxing", "_specialize_box"),
)
"""Private names that this floor relies on, as (module, dotted attribute)."""

REQUIRED_LATER: tuple[tuple[str, str], ...] = (
    ("numba.np.arrayobj", "extents_may_overlap"),
    ("numba.np.arrayobj", "get_array_memory_extents"),
    ("numba.np.linalg", "ensure_blas"),
    ("numba.np.arraymath", "ensure_blas"),
    ("numba.np.arraymath", "_HAVE_BLAS"),
)
"""As `REQUIRED`, checked by who uses them: Numba itself loads their modules when it compiles."""

_SIGNATURES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("numba.core.typing.context", "CallStack.register", ("target", "typeinfer", "func_id", "args")),
    (
        "numba.core.cpu",
        "CPUContext.create_cpython_wrapper",
        ("library", "fndesc", "env", "call_helper", "release_gil"),
    ),
    ("numba.core.dispatcher", "_FunctionCompiler._compile_core", ("args", "return_type")),
    ("numba.core.debuginfo", "DIBuilder._di_subroutine_type", ("line", "function", "argmap")),
    ("numba.core.dispatcher", "_DispatcherBase.add_overload", ("cres",)),
    (
        "numba.np.ufunc.ufuncbuilder",
        "UFuncDispatcher.compile",
        ("sig", "locals", "targetoptions"),
    ),
    ("numba.core.ccallback", "CFunc.compile", ()),
)


def import_on_demand() -> None:
    """Import what Numba imports when it first compiles, but for the whole of SciPy's ``linalg``.

    To see whether there is a BLAS, Numba imports it, which takes as long as all else in the first
    compile of a small function. That the file is there tells as much; whatever calls BLAS imports
    it, and complains if that fails, when it is compiled.
    """
    linalg: Any = importlib.import_module("numba.np.linalg")
    if "numba.np.arraymath" not in sys.modules and _is_blas_installed():
        numba_own = linalg.ensure_blas
        linalg.ensure_blas = _nothing
        try:
            arraymath: Any = importlib.import_module("numba.np.arraymath")
        finally:
            linalg.ensure_blas = numba_own
        arraymath.ensure_blas = numba_own
    for name in IMPORTED_ON_DEMAND:
        importlib.import_module(name)


def _nothing() -> None:
    """Do nothing."""


def _is_blas_installed() -> bool:
    spec = importlib.util.find_spec("scipy")
    return spec is not None and any(
        Path(folder, "linalg", f"cython_blas{suffix}").exists()
        for folder in spec.submodule_search_locations or ()
        for suffix in EXTENSION_SUFFIXES
    )


def _resolve(module: str, dotted: str) -> Any:
    value: Any = importlib.import_module(module)
    for part in dotted.split("."):
        value = inspect.getattr_static(value, part)
    return value


def missing_internals() -> tuple[str, ...]:
    """Return a sentence for each required private name that is not as verified.

    Returns
    -------
    tuple of str
        Empty when this Numba has everything in the shape that was verified.

    Examples
    --------
    >>> missing_internals()
    ()
    """
    faults = []
    for module, dotted in REQUIRED:
        try:
            _resolve(module, dotted)
        except (ImportError, AttributeError):
            faults.append(f"{module}.{dotted} does not exist")
    for module, dotted, expected in _SIGNATURES:
        try:
            parameters = tuple(inspect.signature(_resolve(module, dotted)).parameters)
        except (ImportError, AttributeError):
            faults.append(f"{module}.{dotted} does not exist")
            continue
        if parameters[1:] != expected:
            faults.append(f"{module}.{dotted} takes {parameters[1:]}, expected {expected}")
    return tuple(faults)


def require_later() -> None:
    """Refuse a Numba whose `REQUIRED_LATER` parts are not as verified.

    Raises
    ------
    UsageError
        Naming what is missing.

    Examples
    --------
    >>> require_later()
    """
    for module, dotted in REQUIRED_LATER:
        try:
            _resolve(module, dotted)
        except (ImportError, AttributeError):
            raise UsageError(
                f"Numba {numba.__version__} differs from the one that was verified: "
                f"{module}.{dotted} does not exist"
            ) from None


def require_known_numba(version: str = numba.__version__) -> None:
    """Refuse a Numba whose private parts were not verified.

    Parameters
    ----------
    version : str
        Numba's version.

    Raises
    ------
    UsageError
        Naming the versions that work and what to do.

    Examples
    --------
    >>> require_known_numba("0.1.0")
    Traceback (most recent call last):
        ...
    alloccheck.errors.UsageError: Numba 0.1.0 is not supported: alloccheck isolates Numba's \
inference through private parts that were verified on 0.68 only. Install a verified version, \
for example: pip install 'numba==0.68.*'
    """
    if ".".join(version.split(".")[:2]) not in VERIFIED_NUMBA:
        raise UsageError(
            f"Numba {version} is not supported: alloccheck isolates Numba's inference through "
            f"private parts that were verified on {', '.join(VERIFIED_NUMBA)} only. Install a "
            f"verified version, for example: pip install 'numba=={VERIFIED_NUMBA[-1]}.*'"
        )
    faults = missing_internals()
    if faults:
        raise UsageError(
            f"Numba {version} differs from the one that was verified: {'; '.join(faults)}. "
            f"Reinstall it, for example: pip install --force-reinstall "
            f"'numba=={VERIFIED_NUMBA[-1]}.*'"
        )


require_known_numba()


def declare_runtime_symbols() -> None:
    """Tell LLVM where Numba's run time is, without compiling the part of it that is IR.

    What ``_Runtime.initialize`` does first; it may be done again.
    """
    import llvmlite.binding as ll
    from numba.core import config
    from numba.core.runtime import _nrt_python, rtsys

    if config.NRT_STATS:
        from numba.core import registry

        rtsys.initialize(registry.cpu_target._toplevel_target_context)
        return
    for name, address in _nrt_python.c_helpers.items():
        ll.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)


def versions() -> dict[str, str]:
    """Return the versions that a verdict depends on, by package name.

    Examples
    --------
    >>> sorted(versions())
    ['alloccheck', 'llvm', 'llvmlite', 'numba', 'numpy', 'python']
    """
    import platform

    import llvmlite.binding
    import numpy

    from alloccheck import __version__

    return {
        "alloccheck": __version__,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "llvm": ".".join(map(str, llvmlite.binding.llvm_version_info)),
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }

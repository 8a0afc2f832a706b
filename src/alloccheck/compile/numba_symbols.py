"""Which external symbols the installed Numba can emit on a CPU, derived from Numba and LLVM.

Three sources, none of them a copy of our contract tables: the helpers that Numba registers with
LLVM, the names that Numba's Python source passes to whatever declares a function, and the
run-time calls that LLVM's code generator is seen to add. What cannot be derived (run-time calls
that depend on an optimiser's whim) is written out at the end, each list with its reason.

Knows nothing of contracts: a test compares the two.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

import llvmlite.binding as llvm


@dataclass(frozen=True, slots=True)
class EmissionSite:
    """A place in Numba's source that declares a function whose name is not a constant.

    Parameters
    ----------
    module : str
        Path below the `numba` package, with forward slashes.
    function : str
        Qualified name of the function that holds the call.
    line : int
        Line of the call.
    expression : str
        The source of the name's expression.
    """

    module: str
    function: str
    line: int
    expression: str

    @property
    def key(self) -> tuple[str, str]:
        """What a review of this site is filed under; line numbers move, functions seldom do."""
        return self.module, self.function


@dataclass(frozen=True, slots=True)
class SourceScan:
    """What Numba's Python source declares.

    Parameters
    ----------
    names : mapping of str to str
        Symbol to ``"numba/path.py:line"`` of its first declaration.
    computed : tuple of EmissionSite
        Sites whose name is computed.
    """

    names: Mapping[str, str]
    computed: tuple[EmissionSite, ...]

    @property
    def unreviewed(self) -> tuple[EmissionSite, ...]:
        """Computed sites that nobody has looked at: the derived list may be incomplete."""
        return tuple(site for site in self.computed if site.key not in REVIEWED)

    @property
    def stale_reviews(self) -> tuple[tuple[str, str], ...]:
        """Reviews whose site is gone."""
        seen = {site.key for site in self.computed}
        return tuple(sorted(key for key in REVIEWED if key not in seen))


# --- helpers that Numba registers with LLVM --------------------------------------------------


@cache
def registered_helpers() -> Mapping[str, str]:
    """Symbols that Numba hands to LLVM by address, with where they are registered.

    The same tables and naming rules as `numba.core.base._load_global_helpers`,
    `numba.core.runtime.nrt._Runtime.initialize` and `numba.core.externals`.

    Returns
    -------
    mapping of str to str
        Symbol to the name of its registration table.

    Examples
    --------
    >>> "numba_dict_lookup" in registered_helpers(), "NRT_Allocate" in registered_helpers()
    (True, True)
    """
    from numba.core.intrinsics import INTR_MATH

    found: dict[str, str] = {}
    for module in ("numba._helperlib", "numba._dynfunc"):
        for name in import_module(module).c_helpers:
            found[f"numba_{name}"] = f"{module}.c_helpers"
    module = "numba.core.runtime._nrt_python"
    for name in import_module(module).c_helpers:
        symbol = name if name.startswith("_") else f"NRT_{name}"
        found[symbol] = f"{module}.c_helpers"
    for name in INTR_MATH:
        found[name] = "numba.core.intrinsics.INTR_MATH"
    return MappingProxyType(found)


@cache
def registered_data() -> Mapping[str, str]:
    """List data symbols that Numba registers with LLVM: addresses, never called."""
    from numba.cpython.hashing import _hashsecret

    found = {"_Py_NoneStruct": "numba.core.base._load_global_helpers"}
    for value in vars(builtins).values():
        if isinstance(value, type) and issubclass(value, BaseException):
            found[f"PyExc_{value.__name__}"] = "numba.core.base._load_global_helpers"
    for entry in _hashsecret.values():
        found[entry.symbol] = "numba.cpython.hashing._build_hashsecret"
    return MappingProxyType(found)


# --- names in Numba's Python source ----------------------------------------------------------

# How a call declares a function: the called name, and where among its arguments the symbols are.
# `Function` counts only as `ir.Function`; `_call_number_operator` gives `PyNumber_` names.
_EMITTERS: Mapping[str, tuple[tuple[int, str], ...]] = MappingProxyType(
    {
        "get_or_insert_function": ((2, "name"),),
        "insert_pure_function": ((2, "name"),),
        "_call_func_by_name_with_cast": ((4, "func_name"),),
        "Function": ((2, "name"),),
        "_get_function": ((1, "name"),),
        "ExternalFunction": ((0, "symbol"),),
        "add_symbol": ((0, "name"),),
        "unary_math_extern": ((1, "f32extern"), (2, "f64extern")),
        "_long_from_native_int": ((1, "func_name"),),
        "_call_varsize_alloc": ((3, "funcname"),),
        "_call_incref_decref": ((3, "funcname"),),
        "_call_number_operator": ((0, "name"),),
    }
)

# Most files declare nothing: this saves parsing them.
_MENTIONS_EMITTER = re.compile(rf"\b(?:{'|'.join(_EMITTERS)})\(")

# Parts of the package that never take part in just-in-time compilation for the CPU.
_OUT_OF_SCOPE = ("tests/", "cuda/", "testing/", "pycc/", "core/datamodel/testing.py")

REVIEWED: Mapping[tuple[str, str], tuple[str, ...]] = MappingProxyType(
    {
        # Symbols that `registered_helpers` and `registered_data` already list.
        ("core/base.py", "_load_global_helpers"): (),
        ("core/externals.py", "_add_missing_symbol"): (),
        ("core/externals.py", "_ExternalMathFunctions._do_install"): (),
        ("core/runtime/nrt.py", "_Runtime.initialize"): (),
        ("cpython/hashing.py", "_build_hashsecret.inject"): (),
        # Functions that forward a name: their callers are emitters themselves.
        ("core/cgutils.py", "insert_pure_function"): (),
        ("np/npyfuncs.py", "_call_func_by_name_with_cast"): (),
        ("core/cgutils.py", "get_or_insert_function"): (),
        ("core/pythonapi.py", "PythonAPI._get_function"): (),
        ("core/pythonapi.py", "PythonAPI._long_from_native_int"): (),
        ("core/pythonapi.py", "PythonAPI._get_number_operator"): (),
        ("core/runtime/context.py", "NRTContext._call_varsize_alloc"): (),
        ("core/runtime/context.py", "NRTContext._call_incref_decref"): (),
        ("cpython/mathimpl.py", "unary_math_extern.float_impl"): (),
        ("np/math/mathimpl.py", "unary_math_extern.float_impl"): (),
        # Functions compiled from Python source: part of the program, not external.
        ("core/base.py", "BaseContext.declare_function"): (),
        ("core/callconv.py", "CPUCallConv.emit_unwrap_dynamic_exception_fn"): (),
        ("core/callwrapper.py", "PyCallWrapper.build"): (),
        ("core/cpu.py", "CPUContext.create_cpython_wrapper"): (),
        ("core/cpu.py", "CPUContext.create_cfunc_wrapper"): (),
        ("core/generators.py", "BaseGeneratorLower.lower_finalize_func"): (),
        ("core/pythonapi.py", "PythonAPI.from_native_generator"): (),
        ("cpython/listobj.py", "ListInstance.define_dtor"): (),
        ("cpython/numbers.py", "real_divmod"): (),
        ("cpython/setobj.py", "SetInstance._imp_dtor"): (),
        ("experimental/function_type.py", "lower_cast_dispatcher_to_function_type"): (),
        ("experimental/jitclass/base.py", "imp_dtor"): (),
        ("np/npyimpl.py", "_Kernel.generate"): (),
        ("np/ufunc/parallel.py", "build_gufunc_kernel"): (),
        ("np/ufunc/wrappers.py", "build_ufunc_wrapper"): (),
        ("np/ufunc/wrappers.py", "_GufuncWrapper._build_wrapper"): (),
        ("parfors/parfor_lowering.py", "call_parallel_gufunc"): (),
        ("typed/typedobjectutils.py", "_get_incref_decref"): (),
        ("typed/typedobjectutils.py", "_get_equal"): (),
        # A function that the user names: `types.ExternalFunction` and its like, or cffi.
        ("core/base.py", "BaseContext.declare_external_function"): (),
        # LLVM intrinsics: not symbols; what becomes of them is `code_generation_calls`.
        ("cpython/builtins.py", "round_impl_unary"): (),
        ("cpython/builtins.py", "round_impl_binary"): (),
        ("cpython/mathimpl.py", "copysign_float_impl"): (),
        ("cpython/randomimpl.py", "_randrange_impl"): (),
        ("np/arraymath.py", "_np_round_float.codegen"): (),
        ("np/math/mathimpl.py", "copysign_float_impl"): (),
        # Names that are computed from a short list, which stands beside the site.
        ("core/cgutils.py", "snprintf"): ("snprintf", "_snprintf"),
        ("core/intrinsics.py", "_DivmodFixer.visit_Instruction"): (
            "numba_sdiv",
            "numba_srem",
            "numba_udiv",
            "numba_urem",
        ),
        ("core/runtime/context.py", "NRTContext.meminfo_alloc_unchecked"): (
            "NRT_MemInfo_alloc",
            "NRT_MemInfo_alloc_safe",
        ),
        ("core/runtime/context.py", "NRTContext.meminfo_alloc_dtor_unchecked"): (
            "NRT_MemInfo_alloc_dtor",
            "NRT_MemInfo_alloc_dtor_safe",
        ),
        ("core/runtime/context.py", "NRTContext.meminfo_alloc_aligned_unchecked"): (
            "NRT_MemInfo_alloc_aligned",
            "NRT_MemInfo_alloc_safe_aligned",
        ),
        ("core/runtime/nrtdynmod.py", "_define_atomic_inc_dec"): (
            "nrt_atomic_add",
            "nrt_atomic_sub",
        ),
        ("cpython/randomimpl.py", "get_state_ptr"): (
            "numba_get_py_random_state",
            "numba_get_np_random_state",
            "numba_get_internal_random_state",
        ),
        ("np/npyfuncs.py", "_dispatch_func_by_name_type"): (
            "numba_nextafter",
            "numba_nextafterf",
        ),
        (
            "np/random/generator_core.py",
            "_generate_next_binding.intrin_NumPyRandomBitGeneratorType_next_ty.codegen",
        ): ("next_double", "next_float", "next_uint32", "next_uint64"),
    }
)
"""What a person found at each computed site: the external symbols that it can declare."""


@cache
def source_scan() -> SourceScan:
    """Read the names that Numba's own source declares.

    Returns
    -------
    SourceScan

    Raises
    ------
    ModuleNotFoundError
        Numba is not installed with its source.

    Examples
    --------
    >>> source_scan().names["PyErr_SetNone"].startswith("numba/core/pythonapi.py:")
    True
    """
    root = numba_root()
    names: dict[str, str] = {}
    computed: list[EmissionSite] = []
    for path in sorted(root.rglob("*.py")):
        module = path.relative_to(root).as_posix()
        if module.startswith(_OUT_OF_SCOPE) or "/tests/" in module:
            continue
        text = path.read_text(encoding="utf-8")
        if not _MENTIONS_EMITTER.search(text):
            continue
        tree = ast.parse(text)
        for call, scopes in _calls(tree):
            for expression, prefixes in _name_arguments(call):
                symbols = _constants(expression, scopes)
                if symbols is None:
                    computed.append(
                        EmissionSite(
                            module, _qualified(scopes), call.lineno, ast.unparse(expression)
                        )
                    )
                    continue
                for symbol in sorted(prefix + name for prefix in prefixes for name in symbols):
                    names.setdefault(symbol, f"numba/{module}:{call.lineno}")
    for site in computed:
        for symbol in REVIEWED.get(site.key, ()):
            names.setdefault(symbol, f"numba/{site.module}:{site.line}")
    intrinsics = [name for name in names if name.startswith("llvm.")]
    for name in intrinsics + [name for name in names if name in _DEFINED_BY_NUMBA]:
        del names[name]
    return SourceScan(MappingProxyType(names), tuple(computed))


# Functions with a body in the very module that declares them, or in a library of their own
# (`core/externals.py`): never external.
_DEFINED_BY_NUMBA = frozenset({"multi3", "_numba_dict_dtor", "_numba_list_dtor", "_numba_set_dtor"})


def numba_root() -> Path:
    """Directory of the installed `numba` package."""
    spec = find_spec("numba")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("expected the numba package to be installed with its source")
    return Path(spec.origin).parent


_Scopes = tuple[ast.AST, ...]


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, _Scopes]]:
    """Yield every call with the scopes around it, outermost first; in the order of the source."""
    waiting: list[tuple[ast.AST, _Scopes]] = [(tree, (tree,))]
    while waiting:
        node, scopes = waiting.pop()
        if isinstance(node, ast.Call):
            yield node, scopes
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            scopes = (*scopes, node)
        children = [child for child in ast.iter_child_nodes(node) if child._fields]
        waiting += [(child, scopes) for child in reversed(children)]


def _name_arguments(call: ast.Call) -> Iterator[tuple[ast.expr, tuple[str, ...]]]:
    called = call.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    if name not in _EMITTERS:
        return
    if name == "Function" and not (
        isinstance(called, ast.Attribute) and ast.unparse(called.value) in ("ir", "llvmlite.ir")
    ):
        return
    prefixes: tuple[str, ...] = ("",)
    if name == "_call_number_operator":
        prefixes = ("PyNumber_", "PyNumber_InPlace")
    for index, keyword in _EMITTERS[name]:
        given = [argument.value for argument in call.keywords if argument.arg == keyword]
        if len(call.args) > index:
            given = [call.args[index]]
        starred = [a for a in call.args if isinstance(a, ast.Starred)]
        for expression in given or starred:
            yield expression, prefixes


def _constants(expression: ast.expr, scopes: _Scopes) -> frozenset[str] | None:
    """Return every string that an expression can be, or None when that is not plain."""
    match expression:
        case ast.Constant(value=str() as text):
            return frozenset({text})
        case ast.IfExp(body=body, orelse=orelse):
            return _all_constants([body, orelse], scopes)
        case ast.Subscript(value=ast.Dict(values=values)):
            return _all_constants(values, scopes)
        case ast.Name(id=identifier):
            for depth in range(len(scopes) - 1, -1, -1):
                if _is_parameter(scopes[depth], identifier):
                    return None
                assigned = _assigned(scopes[depth], identifier)
                if assigned:
                    return _all_constants(assigned, scopes[: depth + 1])
    return None


def _all_constants(expressions: list[ast.expr], scopes: _Scopes) -> frozenset[str] | None:
    found: set[str] = set()
    for expression in expressions:
        some = _constants(expression, scopes)
        if some is None:
            return None
        found |= some
    return frozenset(found)


def _is_parameter(scope: ast.AST, identifier: str) -> bool:
    if not isinstance(scope, ast.FunctionDef):
        return False
    arguments = scope.args
    plain = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return any(argument.arg == identifier for argument in plain)


def _assigned(scope: ast.AST, identifier: str) -> list[ast.expr]:
    return [
        node.value
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == identifier for t in node.targets)
    ]


def _qualified(scopes: _Scopes) -> str:
    named = [s.name for s in scopes if isinstance(s, ast.FunctionDef | ast.ClassDef)]
    return ".".join(named)


# --- run-time calls that LLVM's code generator adds ------------------------------------------


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_MATH_INTRINSICS = _words(
    "acos asin atan ceil cos cosh exp exp10 exp2 fabs floor log log10 log2 nearbyint rint round "
    "roundeven sin sinh sqrt tan tanh trunc"
)
_MATH_INTRINSICS_2 = _words("atan2 copysign maxnum minnum pow")
_TYPES = {"half": "f16", "float": "f32", "double": "f64"}


@dataclass(frozen=True, slots=True)
class _Probe:
    """A function of LLVM IR whose object code shows which run-time calls an operation needs."""

    result: str
    arguments: tuple[str, ...]
    body: str
    declarations: tuple[str, ...] = field(default=())

    def text(self, index: int) -> str:
        parameters = ", ".join(
            f"{kind} %{n}" for n, kind in zip("abc", self.arguments, strict=False)
        )
        finish = "ret void" if self.result == "void" else f"ret {self.result} %r"
        return f"define {self.result} @probe{index}({parameters}) {{\n{self.body}\n{finish}\n}}\n"


def _probes() -> Iterator[_Probe]:
    for kind, suffix in _TYPES.items():
        for name in _MATH_INTRINSICS:
            function = f"@llvm.{name}.{suffix}"
            yield _Probe(
                kind,
                (kind,),
                f"%r = call {kind} {function}({kind} %a)",
                (f"declare {kind} {function}({kind})",),
            )
        for name in _MATH_INTRINSICS_2:
            function = f"@llvm.{name}.{suffix}"
            yield _Probe(
                kind,
                (kind, kind),
                f"%r = call {kind} {function}({kind} %a, {kind} %b)",
                (f"declare {kind} {function}({kind}, {kind})",),
            )
        for name in ("fma",):
            function = f"@llvm.{name}.{suffix}"
            yield _Probe(
                kind,
                (kind, kind, kind),
                f"%r = call {kind} {function}({kind} %a, {kind} %b, {kind} %c)",
                (f"declare {kind} {function}({kind}, {kind}, {kind})",),
            )
        for name in ("powi", "ldexp"):
            function = f"@llvm.{name}.{suffix}.i32"
            yield _Probe(
                kind,
                (kind, "i32"),
                f"%r = call {kind} {function}({kind} %a, i32 %b)",
                (f"declare {kind} {function}({kind}, i32)",),
            )
        yield _Probe(kind, (kind, kind), f"%r = frem {kind} %a, %b")
        both = f"{{ {kind}, i32 }} @llvm.frexp.{suffix}.i32"
        yield _Probe(
            f"{{ {kind}, i32 }}",
            (kind,),
            f"%r = call {both}({kind} %a)",
            (f"declare {both}({kind})",),
        )
        yield _Probe(
            kind,
            (kind,),
            f"%s = call {kind} @llvm.sin.{suffix}({kind} %a)\n"
            f"%t = call {kind} @llvm.cos.{suffix}({kind} %a)\n%r = fadd {kind} %s, %t",
            (
                f"declare {kind} @llvm.sin.{suffix}({kind})",
                f"declare {kind} @llvm.cos.{suffix}({kind})",
            ),
        )
        for wide in ("i64", "i128"):
            for operation in ("fptosi", "fptoui"):
                yield _Probe(wide, (kind,), f"%r = {operation} {kind} %a to {wide}")
            for operation in ("sitofp", "uitofp"):
                yield _Probe(kind, (wide,), f"%r = {operation} {wide} %a to {kind}")
        for other in _TYPES:
            if list(_TYPES).index(other) < list(_TYPES).index(kind):
                yield _Probe(other, (kind,), f"%r = fptrunc {kind} %a to {other}")
                yield _Probe(kind, (other,), f"%r = fpext {other} %a to {kind}")
    for operation in ("mul", "sdiv", "udiv", "srem", "urem", "shl", "lshr", "ashr"):
        for wide in ("i64", "i128"):
            yield _Probe(wide, (wide, wide), f"%r = {operation} {wide} %a, %b")
    checked = "{ i128, i1 } @llvm.smul.with.overflow.i128"
    yield _Probe(
        "{ i128, i1 }",
        ("i128", "i128"),
        f"%r = call {checked}(i128 %a, i128 %b)",
        (f"declare {checked}(i128, i128)",),
    )
    for name in ("memcpy", "memmove"):
        function = f"void @llvm.{name}.p0.p0.i64"
        yield _Probe(
            "void",
            ("ptr", "ptr", "i64"),
            f"call {function}(ptr %a, ptr %b, i64 %c, i1 false)",
            (f"declare {function}(ptr, ptr, i64, i1)",),
        )
    function = "void @llvm.memset.p0.i64"
    yield _Probe(
        "void",
        ("ptr", "i8", "i64"),
        f"call {function}(ptr %a, i8 %b, i64 %c, i1 false)",
        (f"declare {function}(ptr, i8, i64, i1)",),
    )


@cache
def code_generation_calls() -> Mapping[str, str]:
    """Run-time functions that LLVM calls for operations which Numba's IR can hold.

    Compiles one small function per operation for the baseline of this machine's architecture (a
    CPU without optional features needs the most calls) and reads the undefined symbols of the
    object.

    Returns
    -------
    mapping of str to str
        Symbol to its origin.

    Examples
    --------
    >>> {"sincos", "fmod", "memset"} <= set(code_generation_calls())
    True
    """
    probes = list(_probes())
    declarations = sorted({line for probe in probes for line in probe.declarations})
    text = "\n".join(declarations) + "\n"
    text += "\n".join(probe.text(index) for index, probe in enumerate(probes))
    origin = "LLVM code generation (probed)"
    return MappingProxyType(dict.fromkeys(undefined_symbols(text), origin))


def undefined_symbols(text: str) -> frozenset[str]:
    """Undefined symbols of the object that LLVM makes of a module, for a CPU without extras.

    Parameters
    ----------
    text : str
        LLVM IR.

    Returns
    -------
    frozenset of str

    Raises
    ------
    RuntimeError
        LLVM cannot parse the module, or the object is not ELF.

    Examples
    --------
    >>> body = "%r = call double @sin(double %a) ret double %r"
    >>> sorted(undefined_symbols(
    ...     "declare double @sin(double) define double @f(double %a) { " + body + " }"))
    ['sin']
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    triple = llvm.get_process_triple()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        opt=3, codemodel="jitdefault", jit=True
    )
    module.triple = triple
    module.data_layout = str(machine.target_data)
    module.verify()
    return object_undefined_symbols(machine.emit_object(module))


def object_undefined_symbols(image: bytes) -> frozenset[str]:
    """Names of the undefined symbols of an ELF object.

    Parameters
    ----------
    image : bytes
        The object file.

    Returns
    -------
    frozenset of str
    """
    from io import BytesIO

    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    table = ELFFile(BytesIO(image)).get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        raise RuntimeError("expected an ELF object with a symbol table, found none")
    return frozenset(
        symbol.name
        for symbol in table.iter_symbols()
        if symbol["st_shndx"] == "SHN_UNDEF" and symbol.name
    )


# --- what cannot be derived ------------------------------------------------------------------

_REAL_MATH = _words(
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 "
    "expm1 fabs fdim floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log "
    "log10 log1p log2 logb lrint lround modf nan nearbyint nextafter nexttoward pow remainder "
    "remquo rint round roundeven scalbln scalbn sin sincos sinh sqrt tan tanh tgamma trunc"
)
_COMPLEX_MATH = _words(
    "cabs cacos cacosh carg casin casinh catan catanh ccos ccosh cexp cimag clog conj cpow cproj "
    "creal csin csinh csqrt ctan ctanh"
)

C_MATH: tuple[str, ...] = tuple(
    name + suffix for name in _REAL_MATH + _COMPLEX_MATH for suffix in ("", "f", "l")
)
"""ISO C's mathematics for three precisions: LLVM's optimiser turns one function into another
(`pow` into `exp2`, `sqrt` or `ldexp`, `printf` into `puts`) as its library knowledge allows."""

C_MEMORY_AND_TEXT: tuple[str, ...] = _words(
    "memcpy memmove memset memcmp memchr memrchr bcmp bzero mempcpy memccpy strlen strnlen "
    "strcmp strncmp strchr strrchr strcpy strncpy stpcpy stpncpy strcat strncat wcslen "
    "putchar putc fputc fputs fwrite puts printf fprintf sprintf snprintf vprintf vsnprintf"
)
"""What LLVM's loop-idiom and library-call passes may write instead of a loop or a `printf`."""

COMPILER_RUN_TIME: tuple[str, ...] = _words(
    "__multi3 __muloti4 __mulodi4 __divti3 __modti3 __udivti3 __umodti3 __udivmodti4 "
    "__divmodti4 __ashlti3 __ashrti3 __lshrti3 __powisf2 __powidf2 __fixsfti __fixdfti "
    "__fixunssfti __fixunsdfti __floattisf __floattidf __floatuntisf __floatuntidf "
    "__extendhfsf2 __truncsfhf2 __truncdfhf2 __gnu_h2f_ieee __gnu_f2h_ieee __truncsfbf2 "
    "__truncdfbf2 __mulsc3 __muldc3 __divsc3 __divdc3"
)
"""libgcc and compiler-rt: arithmetic that a target lacks; probing shows only this machine's."""

UNWINDING: tuple[str, ...] = ("_Unwind_Resume", "__gxx_personality_v0", "__gcc_personality_v0")
"""Referred to by objects that hold unwind tables."""

PROCESS_DEATH: tuple[str, ...] = (
    "abort",
    "exit",
    "_exit",
    "__assert_fail",
    "__stack_chk_fail",
    "__chk_fail",
    "__fortify_fail",
)
"""What a trap, an assertion or a stack check ends in."""

ALLOCATORS: tuple[str, ...] = _words(
    "malloc calloc realloc reallocarray free cfree aligned_alloc posix_memalign memalign "
    "valloc pvalloc malloc_usable_size mmap mmap64 munmap mremap brk sbrk strdup strndup "
    "_Znwm _Znam _ZnwmRKSt9nothrow_t _ZnamRKSt9nothrow_t _ZnwmSt11align_val_t "
    "_ZnamSt11align_val_t _ZdlPv _ZdaPv _ZdlPvm _ZdaPvm _ZdlPvSt11align_val_t "
    "_ZdaPvSt11align_val_t"
)
"""Named by users' own bindings (`ExternalFunction`, cffi), and by library code behind them."""


@cache
def external_symbols() -> Mapping[str, str]:
    """Every external symbol that the installed Numba can emit on this CPU, with its origin.

    Returns
    -------
    mapping of str to str
        Symbol to where it was found, sorted by symbol.

    Examples
    --------
    >>> symbols = external_symbols()
    >>> symbols["numba_do_raise"]
    'numba._helperlib.c_helpers'
    >>> "not_a_symbol" in symbols
    False
    """
    written = {
        "C mathematics": C_MATH,
        "LLVM optimiser": C_MEMORY_AND_TEXT,
        "compiler run time": COMPILER_RUN_TIME,
        "unwinding": UNWINDING,
        "process death": PROCESS_DEATH,
        "allocators": ALLOCATORS,
    }
    found: dict[str, str] = {}
    for mapping in (
        registered_helpers(),
        registered_data(),
        source_scan().names,
        code_generation_calls(),
        *(dict.fromkeys(names, origin) for origin, names in written.items()),
    ):
        for symbol, origin in mapping.items():
            found.setdefault(symbol, origin)
    bad = [name for name in found if not re.fullmatch(r"[A-Za-z_.$][\w.$]*", name)]
    if bad:
        raise RuntimeError(f"expected symbol names, found {sorted(bad)} in Numba's source")
    return MappingProxyType(dict(sorted(found.items())))

"""A process that asks one compiler about one program under one history, and says what it saw.

Started as ``python -m alloccheck.order.worker``: the request is JSON on standard input, events go
as JSON lines to the file that the request names, each as soon as it is known, so that a crash
loses nothing that came before it. Knows Numba and programs; nothing of what others answered.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import re
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numba import cfunc, njit, types, vectorize
from numba.core import sigutils
from numba.core.ccallback import CFunc
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys

from alloccheck.analysis.contracts import load_contracts
from alloccheck.analysis.solve import solve
from alloccheck.compile.artifact import Built, build
from alloccheck.compile.job import parse_signature
from alloccheck.compile.objectfile import read_object
from alloccheck.compile.target import make_job
from alloccheck.effects import Occasion
from alloccheck.effects import Path as EndPath
from alloccheck.errors import AllocCheckException, UsageError
from alloccheck.order import samples
from alloccheck.order.code import code_digest
from alloccheck.order.program import (
    find,
    functions_of,
    load_module,
    python_function,
    share_callees,
    use_stock_decorators,
)
from alloccheck.program.llvm import read_module
from alloccheck.symbols import well_known_name


class Events:
    """Writes events to a file, each on a line of its own and at once."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def tell(self, event: str, **data: Any) -> None:
        """Append one event."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"event": event, **data}, sort_keys=True) + "\n")


# --- what is asked ----------------------------------------------------------------------------


def answer(request: Mapping[str, Any], events: Events) -> None:
    """Do what a request says.

    Parameters
    ----------
    request : mapping
        ``mode`` is ``"stock"``, ``"hermetic"`` or ``"python"``; ``place``, ``function`` and
        ``signature`` name the target; ``steps`` is its history; ``arguments`` are expressions
        for sample arguments; ``skip`` numbers the samples to leave out; ``path`` and ``disk_cache``
        set the process up.
    events : Events
        Where to tell.
    """
    sys.path[:0] = request["path"]
    mode = request["mode"]
    if mode == "stock":
        use_stock_decorators()
    try:
        module = load_module(request["place"])
        target = find(module, request["function"])
        argument_types, _ = parse_signature(request["signature"])
    except Exception as error:  # the user's module may raise anything
        events.tell("unusable", **_described(error))
        return
    given = _samples(request, module, argument_types, events)
    if mode == "python":
        _run(_interpreted(target), given, events, counted=False)
    elif mode == "hermetic":
        _ask_hermetic(request, module, target, given, events)
    else:
        _ask_stock(request, module, target, given, events)
    events.tell("done")


def _interpreted(target: Any) -> Any:
    return target._pyfunc if isinstance(target, CFunc) else getattr(target, "py_func", target)


def _samples(
    request: Mapping[str, Any], module: Any, argument_types: tuple[Any, ...], events: Events
) -> dict[int, Any]:
    """Return factories of fresh sample arguments, by number."""
    found: dict[int, Any] = {}
    if request["arguments"]:
        for index, text in enumerate(request["arguments"]):
            found[index] = lambda text=text: _evaluated(text, module, len(argument_types))
    else:
        for index in range(len(samples.generated(argument_types))):
            found[index] = lambda index=index: samples.generated(argument_types)[index]
    for index, make in found.items():
        try:
            shown = ", ".join(map(samples.shown, make()))
        except Exception as error:  # an expression of the user's
            events.tell("unusable", **_described(error))
            raise SystemExit(0) from None
        events.tell("sample", index=index, shown=f"({shown})")
    return {index: make for index, make in found.items() if index not in request["skip"]}


def _evaluated(text: str, module: Any, count: int) -> tuple[Any, ...]:
    try:
        value = eval(text, {"np": np, "numpy": np, **vars(module)})  # the user's own expression
    except Exception as error:
        raise UsageError(f"--args {text!r}: {type(error).__name__}: {error}") from None
    given = value if isinstance(value, tuple) else (value,)
    if len(given) != count:
        raise UsageError(f"--args {text!r}: {count} arguments expected, found {len(given)}")
    return given


# --- stock Numba --------------------------------------------------------------------------------


def _ask_stock(
    request: Mapping[str, Any],
    module: Any,
    target: Any,
    given: dict[int, Any],
    events: Events,
) -> None:
    known = functions_of(module, target)
    if request["disk_cache"]:
        for one in known.values():
            with contextlib.suppress(Exception):  # not every function can be cached
                one.enable_caching()
    for step in request["steps"]:
        try:
            _take(step, known)
        except Exception as error:  # a history may fail; what it leaves behind is of interest
            events.tell("step failed", function=step["function"], **_described(error))
    entry = target if isinstance(target, CPUDispatcher) else njit(_interpreted(target))
    if request["disk_cache"] and entry is not target:
        with contextlib.suppress(Exception):
            entry.enable_caching()
    argument_types, return_type = sigutils.normalize_signature(request["signature"])
    key = tuple(argument_types)
    try:
        if entry._can_compile:
            entry.compile(key if return_type is None else return_type(*key))
        compiled = entry.overloads[key]
    except KeyError:
        shown = ", ".join(map(str, key))
        events.tell("error", type="TypeError", message=f"({shown}) is no declared signature")
        return
    except Exception as error:  # Numba raises anything from TypeError to AssertionError
        events.tell("error", **_described(error))
        return
    events.tell("compiled", **_facts(compiled))
    _run(entry, given, events, counted=True)


def _take(step: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    function = known[step["function"]]
    argument_types = _decoded(step["types"])
    action = step["action"]
    if action == "enter":
        function.compile(argument_types)
    elif action == "declare":
        function.compile(_decoded(step["result"])(*argument_types))
    else:
        caller = _caller(function, len(argument_types))
        if action == "caller":
            njit(**step["options"])(caller).compile(argument_types)
        else:
            make = vectorize if action == "ufunc" else cfunc
            signature = _decoded(step["result"])(*argument_types)
            make([signature] if action == "ufunc" else signature)(caller)


def _caller(function: Any, count: int) -> Any:
    names = ", ".join(f"a{i}" for i in range(count))
    return eval(f"lambda {names}: function({names})", {"function": function})


def _facts(compiled: Any) -> dict[str, Any]:
    """Return what can be said of a compiled function without running it."""
    signature = compiled.signature
    facts: dict[str, Any] = {
        "types": f"{signature.return_type}({', '.join(map(str, signature.args))})",
        "digest": None,
        **_effects("", ""),
    }
    library = compiled.library
    with contextlib.suppress(AllocCheckException, RuntimeError, TypeError):
        described = compiled.fndesc
        wrappers = {described.llvm_cpython_wrapper_name, described.llvm_cfunc_wrapper_name}
        facts["digest"] = code_digest(read_object(bytes(library._get_compiled_object())), wrappers)
    # A function from the disk cache has no IR: then nothing is said of its effects.
    facts.update(_effects(library.get_llvm_str(), compiled.fndesc.mangled_name))
    return facts


def _effects(listing: str, symbol: str) -> dict[str, Any]:
    """Return the effects that a listing shows, with our own reader and solver."""
    try:
        solution = solve(
            read_module(listing, symbol), load_contracts().lookup, address_names=well_known_name
        )
    except AllocCheckException:
        return {"effects": None, "may_raise": None}
    effects = {
        str(one.effect) if one.occasion is Occasion.EVERY_CALL else f"{one.effect} ({one.occasion})"
        for one in solution.witnesses
        if one.path is not EndPath.RAISE
    }
    # What happens on every call covers what happens on some.
    effects = {one for one in effects if " (" not in one or one.split(" (")[0] not in effects}
    return {"effects": sorted(effects), "may_raise": solution.may_raise}


# --- the hermetic answer ------------------------------------------------------------------------


def _ask_hermetic(
    request: Mapping[str, Any],
    module: Any,
    target: Any,
    given: dict[int, Any],
    events: Events,
) -> None:
    argument_types, _ = sigutils.normalize_signature(request["signature"])
    known = functions_of(module, target)
    called: dict[Any, dict[Any, Any]] = {}
    try:
        job = make_job(target, request["signature"])
        built = build(job)
    except Exception as error:  # Numba's errors have no common base
        events.tell("error", **_described(error))
        built = None
    if built is not None:
        called = _called(built)
        artifact = built.artifact
        signature = artifact.signature
        events.tell(
            "compiled",
            types=f"{signature.return_type}({', '.join(map(str, signature.args))})",
            digest=artifact.digest,
            rounds=artifact.rounds,
            **_effects(built.listing, artifact.symbol),
        )
    events.tell(
        "functions", functions=_described_functions(known, target, called, tuple(argument_types))
    )
    if built is not None:
        _run(built.artifact.result.entry_point, given, events, counted=False)


def _called(built: Built) -> dict[Any, dict[Any, Any]]:
    """Return for each function's code the argument types it was compiled with, and results."""
    found: dict[Any, dict[Any, Any]] = {}
    for one in built.annotations:
        names = [f"arg.{name}" for name in one.func_id.arg_names]
        if all(name in one.typemap for name in names):
            arguments = tuple(types.unliteral(one.typemap[name]) for name in names)
            result = one.signature.rpartition(" -> ")[2]
            found.setdefault(one.func_id.code, {}).setdefault(arguments, result)
    return found


def _described_functions(
    known: Mapping[str, Any],
    target: Any,
    called: Mapping[Any, Mapping[Any, Any]],
    own_types: tuple[Any, ...],
) -> list[dict[str, Any]]:
    found = []
    for label, one in known.items():
        function = python_function(one)
        assert function is not None
        used = dict(called.get(function.__code__, {}))
        if one is target:
            used = {}
            if not one.overloads or one._can_compile:
                used = {own_types: None}
        guessed = (
            one is not target
            and not used
            and function.__code__.co_argcount == len(own_types)
            and share_callees(one, target)
        )
        if guessed:
            used = {own_types: None}
        encoded = [_used(one, arguments, guessed) for arguments in used]
        found.append(
            {
                "label": label,
                "target": one is target,
                "used": [each for each in encoded if each is not None],
            }
        )
    return found


def _used(function: Any, arguments: tuple[Any, ...], guessed: bool) -> dict[str, Any] | None:
    """Describe argument types, or return None for those that cannot leave this process."""
    if any(isinstance(one, types.Dispatcher | types.Omitted) for one in arguments):
        return None
    numbers = bool(arguments) and all(
        isinstance(one, types.Number | types.Boolean) for one in arguments
    )
    try:
        result = build(make_job(function, arguments)).artifact.signature.return_type
    except Exception:  # does not compile by itself: it is entered all the same
        result = None
    wider = _wider(result)
    try:
        return {
            "types": _encoded(arguments),
            "shown": f"({', '.join(map(str, arguments))}{',' if len(arguments) == 1 else ''})",
            "numbers": numbers and isinstance(result, types.Number | types.Boolean),
            "result": _encoded(result),
            "wider": "" if wider is None else _encoded(wider),
            "wider_shown": "" if wider is None else str(wider),
            "guessed": guessed,
        }
    except Exception:  # pickling may fail in any way
        return None


def _wider(result: Any) -> Any:
    """Return a return type that somebody might declare in place of the inferred one."""
    if isinstance(result, types.Array) and result.layout != "A":
        return result.copy(layout="A")
    if isinstance(result, types.Integer):
        return types.float64
    if result == types.float64:
        return types.complex128
    return None


# --- running ------------------------------------------------------------------------------------


def _run(entry: Any, given: Mapping[int, Any], events: Events, *, counted: bool) -> None:
    """Call a function with each sample, and tell what it returned or raised."""
    for index, make in given.items():
        arguments, before = make(), make()
        events.tell("calling", index=index)
        start = rtsys.get_allocation_stats().alloc if counted else 0
        try:
            result = entry(*arguments)
        except BaseException as error:  # whatever the user's function raises is an answer
            said = _described(error)
            events.tell("value", index=index, raised=said["type"], shown=f"raises {said['type']}")
            continue
        more: dict[str, Any] = {}
        if counted:
            # The wrapper makes one block per array argument.
            own = sum(isinstance(one, np.ndarray) for one in arguments)
            more["allocations"] = rtsys.get_allocation_stats().alloc - start - own
        changed = [
            (place, value)
            for place, (value, old) in enumerate(zip(arguments, before, strict=True))
            if samples.shown(value) != samples.shown(old)
        ]
        shown = samples.shown(result)
        for place, value in changed:
            shown += f"; argument {place} becomes {samples.shown(value)}"
        data = [samples.plain(result), [samples.plain(value) for _, value in changed]]
        events.tell("value", index=index, shown=shown, plain=data, **more)


# --- small things -------------------------------------------------------------------------------


def _encoded(value: Any) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def _decoded(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))  # written by another worker of this command


_ADDRESS = re.compile(r"0x[0-9a-f]+")
_BORING = ("Failed in ", "During: ", "File ", "Traceback", "[1] During", "^", "-" * 3)


def _described(error: BaseException) -> dict[str, str]:
    """Return an error's type and its telling line, without anything that varies."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not line.startswith(_BORING)]
    message = _ADDRESS.sub("0x...", telling[0] if telling else str(error))
    return {"type": type(error).__name__, "message": message[:300]}


def main() -> None:
    """Read a request from standard input and answer it."""
    request = json.load(sys.stdin)
    warnings.simplefilter("ignore")
    os.dup2(2, 1)  # what the program prints must not be taken for an answer
    answer(request, Events(request["events"]))


if __name__ == "__main__":
    main()

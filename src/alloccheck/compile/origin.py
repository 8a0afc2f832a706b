"""What a captured value is and whose: the user's, or of packages that nobody rebinds.

Numba's, NumPy's and our own content is told by their versions and files, and nobody changes what
their functions refer to. Numba's tests lie in Numba's package, and are as good as a user's.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

_VERSIONED = ("numba", "numpy", "llvmlite", "alloccheck")
"""Packages whose content the versions and files in the key stand for."""

_LIBRARIES = ("numba", "numpy", "llvmlite")

_STANDARD = str(Path(os.__file__).parent) + os.sep
_ELSEWHERE = (f"{_STANDARD}site-packages{os.sep}", f"{_STANDARD}dist-packages{os.sep}")


@functools.cache
def _trusted_directories() -> tuple[str, ...]:
    files = (getattr(sys.modules.get(name), "__file__", None) for name in _VERSIONED)
    return tuple(str(Path(one).parent) + os.sep for one in files if one)


@functools.cache
def _is_trusted_file(file: str) -> bool:
    """Tell whether a file belongs to the standard library or a versioned package."""
    if file.startswith(_trusted_directories()):
        return f"{os.sep}numba{os.sep}tests{os.sep}" not in file
    return file.startswith(_STANDARD) and not file.startswith(_ELSEWHERE)


def is_trusted_module(name: str) -> bool:
    """Tell whether a module belongs to the standard library or a versioned package.

    Parameters
    ----------
    name : str
        Its name. A file of the user's may hide a standard one: where it lies decides.
    """
    top = name.partition(".")[0]
    if top not in _VERSIONED and top not in sys.stdlib_module_names:
        return False
    file = getattr(sys.modules.get(name), "__file__", None)
    return top in sys.builtin_module_names if file is None else _is_trusted_file(file)


def is_foreign(function: Any) -> bool:
    """Tell whether a Python function is from outside Numba, NumPy, us and the standard library.

    Parameters
    ----------
    function : Callable
        Judged by its code's file: its ``__module__`` can be anything.
    """
    file = function.__code__.co_filename
    if file.startswith("<"):
        # Made of text, or frozen.
        return not is_trusted_module(str(function.__globals__.get("__name__", "")))
    return not _is_trusted_file(file)


def is_of_libraries(function: Any) -> bool:
    """Tell whether a Python function belongs to Numba, NumPy or llvmlite.

    Functions that Numba makes of inner functions have no module: they are the user's.

    Parameters
    ----------
    function : Callable
        Its ``__module__`` alone does not tell: ``functools.wraps`` copies it.

    Examples
    --------
    >>> import numba
    >>> is_of_libraries(numba.njit), is_of_libraries(is_of_libraries)
    (True, False)
    """
    top = (function.__module__ or "").partition(".")[0]
    return top in _LIBRARIES and not is_foreign(function)


def is_a(value: Any, kinds: Any) -> bool:
    """Tell whether a value of anybody's is of one of some types.

    `isinstance` also asks the value, whose answer is code of its class: that of a weak proxy of an
    object that is gone raises an error.

    Parameters
    ----------
    value : object
    kinds : type, union or tuple of types

    Examples
    --------
    >>> is_a(True, int), is_a(True, str | bytes)
    (True, False)
    """
    return issubclass(type(value), kinds)


def attribute(value: Any, name: str) -> Any:
    """Return an attribute of a value of anybody's; None where there is none, or it fails.

    Parameters
    ----------
    value : object
    name : str

    Examples
    --------
    >>> attribute("text", "__len__")(), attribute("text", "length")
    (4, None)
    """
    try:
        return getattr(value, name, None)
    except Exception:
        return None

"""Modules from files: which name a file has as a module, and running it under a name."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path

from alloccheck.errors import UsageError


def module_name(path: Path) -> tuple[Path, str]:
    """Return the name that a file has as a module, by the packages that it lies in.

    Parameters
    ----------
    path : Path
        A file, as an absolute path.

    Returns
    -------
    Path
        The folder that must be on ``sys.path`` for that name.
    str
        The dotted name; of an ``__init__.py`` that of its package.

    Examples
    --------
    >>> root, name = module_name(Path(__file__).resolve())
    >>> name, (root / "alloccheck").is_dir()
    ('alloccheck.modules', True)
    """
    parts = [] if path.stem == "__init__" else [path.stem]
    root = path.parent
    while (root / "__init__.py").exists():
        parts.insert(0, root.name)
        root = root.parent
    return root, ".".join(parts)


def load_file(name: str, path: Path | str) -> types.ModuleType:
    """Run a file as the module of a name, as an import would if it found the file under that name.

    Parameters
    ----------
    name : str
        Under which it stands in ``sys.modules``; whatever stood there is replaced.
    path : Path or str
        A Python source file.

    Raises
    ------
    UsageError
        When the file's name is not one of Python source.
    Exception
        Whatever the module raises; it is not kept then.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "gains.py"
    ...     _ = file.write_text("GAIN = 2.0")
    ...     load_file("alloccheck_example", file).GAIN
    2.0
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module

"""Answers about native functions, kept in files with all that they depend on.

An answer rests on the bytes of some libraries, on the pointers that were followed and on a few
variables that stay constant. All are kept with it, relative to their libraries, and compared before
it is used again; where one differs the function is walked anew. Knows the walker's answers and
files; nothing of Numba or reports.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from alloccheck.analysis.native_answer import NativeAnswer, answer_from_json
from alloccheck.errors import ProgramError
from alloccheck.native_cache import default_directory, load_file, reader_versions, write_file
from alloccheck.program.machine.images import bind
from alloccheck.program.machine.memory import pointer

if TYPE_CHECKING:
    from alloccheck.analysis.native import Decider
    from alloccheck.program.machine.images import Image
    from alloccheck.program.machine.view import View

FORMAT = 2
_VARIANTS = 4
"""Most answers that are kept for one function."""
_MOST_PAGES = 64
"""Most ranges of pages that are looked at one by one."""
_OUTSIDE = -1
"""Stands for no library: what follows is a plain number."""


class AnswerCache:
    """Decides native functions, from kept answers where these still hold.

    Parameters
    ----------
    directory : Path, optional
        Where the files are; the user's cache directory by default.

    Examples
    --------
    >>> import tempfile
    >>> from alloccheck.program.machine.lookup import symbol_address
    >>> sin = symbol_address("libm.so.6", "sin")
    >>> with tempfile.TemporaryDirectory() as place:
    ...     first = AnswerCache(FilePath(place) / "kept")
    ...     one = first.decide(sin)
    ...     second = AnswerCache(FilePath(place) / "kept")
    ...     second.decide(sin) == one, second.hits, second.misses
    (True, 1, 0)
    """

    def __init__(self, directory: FilePath | None = None) -> None:
        self.directory = (default_directory() if directory is None else directory) / "answers"
        self.hits = 0
        self.misses = 0

    def decide(self, address: int) -> NativeAnswer:
        """Decide one function, under the default assumptions.

        Parameters
        ----------
        address : int
            Live address of its entry.
        """
        from alloccheck.program.machine.view import current_view

        view = current_view()
        image = view.images.find(address)
        if image is None:
            return _decider(view).decide(address)
        identities: dict[Image, str] = {}
        place = (str(self.directory), image, address)
        remembered: list[_Kept] = view.kept.setdefault(place, [])
        for one in remembered:
            if one.holds(view, identities):
                self.hits += 1
                return one.answer
        library = view.file(image) or _identity(view, image, identities)
        path = self._path(f"{image.build_id} {library}", address - image.base)
        texts = list(load_file(path).values())
        for text in texts:
            found = _parse(text, address)
            if found is not None and found.holds(view, identities):
                self.hits += 1
                remembered.insert(0, found)
                return found.answer
        self.misses += 1
        decider = _decider(view)
        answer = decider.decide(address)
        needs = _needs(decider, view, identities)
        if needs is not None:
            remembered[:] = [_Kept(needs, answer), *remembered][:_VARIANTS]
            text = json.dumps({"needs": needs, "answer": answer.to_json()}, separators=(",", ":"))
            # The newest first: a process has bound some symbols that another has not.
            texts = [text, *texts][:_VARIANTS]
            with contextlib.suppress(OSError):
                write_file(path, {str(number): one for number, one in enumerate(texts)})
        return answer

    def _path(self, identity: str, relative: int) -> FilePath:
        key = "\n".join((str(FORMAT), _versions(), identity, f"{relative:#x}"))
        return self.directory / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"


def _decider(view: View) -> Decider:
    from alloccheck.analysis.native import Decider
    from alloccheck.program.machine.walk import Walker

    images = view.images.images
    walker = Walker(memory=view.memory, images=images, variables=view.variables)
    return Decider(walker=walker)


@lru_cache(maxsize=1)
def _versions() -> str:
    """Return the versions of all that takes part in an answer."""
    digest = hashlib.sha256(reader_versions().encode())
    folder = files("alloccheck.analysis")
    for name in (
        "native.py",
        "native_answer.py",
        "native_paths.py",
        "native_symbols.py",
        "native_symbols.toml",
    ):
        digest.update(folder.joinpath(name).read_bytes())
    return digest.hexdigest()


def _identity(view: View, image: Image, known: dict[Image, str]) -> str:
    if image not in known:
        known[image] = view.identity(image)
    return known[image]


# --- what an answer depends on --------------------------------------------------------------------


def _needs(decider: Decider, view: View, identities: dict[Image, str]) -> dict[str, Any] | None:
    """Return what an answer depends on, or None where that cannot be told."""
    walker = decider.walker
    images = sorted(walker.images_used(), key=lambda one: one.name)
    numbers = {image: number for number, image in enumerate(images)}
    slots = []
    for slot, value in sorted(walker.followed.items()):
        holder = view.images.find(slot)
        places = [_relative(one, view, numbers) for one in (value, walker.bound.get(slot, value))]
        if holder is None or None in places:
            return None
        slots.append([numbers[holder], slot - holder.base, *places])
    constants = {
        (numbers[image], one.address, one.size, one.value, one.name)
        for image, one in walker.constants_used()
    }
    spans = walker.spans_read()
    libraries = []
    for image in images:
        identity = _identity(view, image, identities)
        read = None if image in decider.unwound else spans.get(image, [])
        pages = view.pages(image, read) if read is not None else None
        if identity != view.file(image) or (pages is not None and len(pages) > _MOST_PAGES):
            pages = None
        libraries.append([image.name, image.build_id, identity, pages])
    return {
        "libraries": libraries,
        "slots": slots,
        "constants": sorted(map(list, constants)),
    }


def _relative(address: int, view: View, numbers: Mapping[Image, int]) -> list[int] | None:
    """Return a library's number and an address in it; None for what is in no library."""
    image = view.images.find(address)
    if image is None:
        return None if address else [_OUTSIDE, 0]
    return [numbers[image], address - image.base]


def _parse(text: str, address: int) -> _Kept | None:
    try:
        data = json.loads(text)
        return _Kept(dict(data["needs"]), answer_from_json(data["answer"], address))
    except (ValueError, TypeError, KeyError, IndexError):
        return None


@dataclass(frozen=True, slots=True)
class _Kept:
    """An answer, and what it depends on."""

    needs: dict[str, Any]
    answer: NativeAnswer

    def holds(self, view: View, identities: dict[Image, str]) -> bool:
        """Return whether libraries, pointers and constant variables are as they were."""
        try:
            images = []
            for name, build_id, identity, pages in self.needs["libraries"]:
                image = view.named(name)
                if image is None or image.build_id != build_id:
                    return False
                if pages is None:
                    if _identity(view, image, identities) != identity:
                        return False
                elif view.file(image) != identity or not view.unwritten(image, pages):
                    return False
                images.append(image)
            present = _Present(view, images)
            return all(present.slot(*one) for one in self.needs["slots"]) and all(
                present.constant(*one) for one in self.needs["constants"]
            )
        except (ValueError, TypeError, KeyError, IndexError, ProgramError):
            return False


@dataclass(frozen=True, slots=True)
class _Present:
    """What pointers and variables of some libraries hold now."""

    view: View
    images: list[Image]

    def slot(self, holder: int, place: int, held: list[int], bound: list[int]) -> bool:
        if holder < 0:
            return False
        image = self.images[holder]
        slot = image.base + place
        if pointer(self.view.memory, slot) != self._address(*held):
            return False
        if held == bound:
            return True
        relocation = image.relocations.get(slot)
        return relocation is not None and bind(image, relocation) == self._address(*bound)

    def _address(self, library: int, value: int) -> int:
        return value if library == _OUTSIDE else self.images[library].base + value

    def constant(self, image: int, address: int, size: int, value: int, name: str) -> bool:
        from alloccheck.program.machine.chunk import ConstantGlobal

        constant = ConstantGlobal(address, size, value, name)
        return self.view.variables(self.images[image]).still(constant)

"""Every function of libraries in wheels for aarch64: ``python tests/aarch64_wheels.py WHEEL...``.

Reads them as data and says how much of what jumps or calls through a register is known, and whether
a word was met that the reader does not know. Wheels come by ``pip download --platform
manylinux_2_28_aarch64 --only-binary=:all: --no-deps PACKAGE``.
"""

import sys
import time
import zipfile
from collections import Counter
from pathlib import Path

from alloccheck.errors import ProgramError
from alloccheck.program.machine.chunk import EventKind
from alloccheck.program.machine.walk import Walker
from elf_files import LinkedMemory

LARGEST = 40 << 20


def look_at(data, name):
    """Return what was counted in one library."""
    memory = LinkedMemory(data)
    image = memory.image(name)
    walker = Walker(memory=memory, images=[image])
    found = Counter()
    for start in image.frames.starts.tolist():
        found["functions"] += 1
        node = walker.node(start)
        if node.chunk is None:
            found["not read"] += 1
            continue
        found["instructions"] += node.chunk.instructions
        for block in node.chunk.blocks:
            for event in block.events:
                if event.kind is EventKind.PROBLEM:
                    found[f"problem: {event.text.split(':')[0]}"] += 1
                elif event.targets is None and event.kind is not EventKind.SYSTEM:
                    found[f"unknown {event.kind}"] += 1
        low, high = node.chunk.low, node.chunk.high
        code = memory.read(image.base + low, high - low)
        words = [int.from_bytes(code[k : k + 4], "little") for k in range(0, len(code), 4)]
        found["register jump"] += sum(word & 0xFFFFFC1F == 0xD61F0000 for word in words)
        found["register call"] += sum(word & 0xFFFFFC1F == 0xD63F0000 for word in words)
    return found


def main(wheels):
    total = Counter()
    begin = time.process_time()
    for wheel in wheels:
        found = Counter()
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                if ".so" not in Path(info.filename).name or info.file_size > LARGEST:
                    continue
                try:
                    found += look_at(archive.read(info), Path(info.filename).name)
                except ProgramError as error:
                    found[f"refused: {error}"] += 1
                found["libraries"] += 1
        print(Path(wheel).name.split("-")[0], dict(sorted(found.items())))
        total += found
    print("all", dict(sorted(total.items())), f"{time.process_time() - begin:.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])

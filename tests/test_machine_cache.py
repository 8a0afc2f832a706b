"""The chunk cache: same answers, and no trust in files that others may have written."""

import json
import os
import time

import pytest

from alloccheck import native_cache
from alloccheck.analysis.native import Decider, decide
from alloccheck.native_cache import ChunkCache
from alloccheck.program.machine.chunk import from_json, to_json
from alloccheck.program.machine.lookup import symbol_address
from alloccheck.program.machine.walk import Walker

NAMES = "sin clog hypot fma cbrt".split()


def fill(directory):
    with ChunkCache(directory) as cache:
        decider = Decider(store=cache)
        answers = [decider.decide(symbol_address("libm.so.6", name)) for name in NAMES]
    return cache, answers


def test_warm_answers_are_the_cold_ones_and_read_no_code(tmp_path):
    cold, first = fill(tmp_path / "c")
    assert cold.hits == 0 and cold.misses > 10
    warm, second = fill(tmp_path / "c")
    assert warm.misses == 0 and warm.hits > 10
    assert first == second


def test_warm_query_takes_milliseconds(tmp_path):
    fill(tmp_path / "c")
    times = []
    for _ in range(5):
        decider = Decider(store=ChunkCache(tmp_path / "c"))
        address = symbol_address("libm.so.6", "sin")
        begin = time.perf_counter()
        decider.decide(address)
        times.append(time.perf_counter() - begin)
    assert min(times) < 0.1


def test_chunks_survive_the_way_through_json():
    walker = Walker()
    chunks = [
        node.chunk
        for name in NAMES
        for node in walker.explore(
            symbol_address("libm.so.6", name), stop=lambda a, image: "libm" not in image.short
        ).nodes.values()
        if node.chunk is not None
    ]
    assert len(chunks) > 20
    for chunk in chunks:
        assert from_json(json.loads(json.dumps(to_json(chunk)))) == chunk


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "other"])
def test_damaged_files_are_ignored(tmp_path, damage):
    fill(tmp_path / "c")
    for path in (tmp_path / "c").iterdir():
        data = bytearray(path.read_bytes())
        if damage == "truncate":
            del data[len(data) // 2 :]
        elif damage == "flip":
            data[len(data) // 2] ^= 4
        elif damage == "empty":
            data = bytearray()
        else:
            data = bytearray(b"{}\n[1, 2]")
        path.write_bytes(data)
    again, _ = fill(tmp_path / "c")
    assert again.hits == 0


def test_files_that_others_may_write_are_ignored(tmp_path):
    fill(tmp_path / "c")
    for path in (tmp_path / "c").iterdir():
        path.chmod(0o666)
    again, _ = fill(tmp_path / "c")
    assert again.hits == 0


def test_directory_that_others_may_write_is_neither_read_nor_written(tmp_path):
    fill(tmp_path / "c")
    (tmp_path / "c").chmod(0o777)
    before = sorted(p.name for p in (tmp_path / "c").iterdir())
    cache, _ = fill(tmp_path / "c")
    assert cache.hits == 0
    assert not cache.save() and sorted(p.name for p in (tmp_path / "c").iterdir()) == before


def test_links_are_not_followed(tmp_path):
    fill(tmp_path / "c")
    for path in list((tmp_path / "c").iterdir()):
        moved = tmp_path / path.name
        path.rename(moved)
        path.symlink_to(moved)
    again, _ = fill(tmp_path / "c")
    assert again.hits == 0


def test_new_files_are_private(tmp_path):
    fill(tmp_path / "c")
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "c").iterdir():
        assert path.stat().st_mode & 0o077 == 0
        assert path.stat().st_uid == os.geteuid()


def test_what_another_reader_wrote_is_not_read(tmp_path, monkeypatch):
    fill(tmp_path / "c")
    monkeypatch.setattr(native_cache, "reader_versions", lambda: "another")
    cache, _ = fill(tmp_path / "c")
    assert cache.hits == 0


def test_a_giant_is_not_read(tmp_path, monkeypatch):
    fill(tmp_path / "c")
    (file, *_) = (tmp_path / "c").iterdir()
    assert native_cache.load_file(file)
    monkeypatch.setattr(native_cache, "_LARGEST_FILE", file.stat().st_size - 1)
    assert native_cache.load_file(file) == {}


def test_two_caches_keep_what_both_found(tmp_path):
    one, two = ChunkCache(tmp_path / "c"), ChunkCache(tmp_path / "c")
    decide(("libm.so.6", "fabs"), store=one)
    decide(("libm.so.6", "ceil"), store=two)
    assert one.save() and two.save()
    third = ChunkCache(tmp_path / "c")
    decide(("libm.so.6", "fabs"), store=third)
    decide(("libm.so.6", "ceil"), store=third)
    assert third.misses == 0

"""The contract tables against Numba, against the C sources behind them, and their reader."""

import doctest
import re
import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path as FilePath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alloccheck.analysis.contracts import (
    Contract,
    ContractEffect,
    contract_lookup,
    contracts_from_mapping,
    load_contracts,
    parse_contracts,
)
from alloccheck.cli.check import user_contracts
from alloccheck.compile import numba_symbols
from alloccheck.compile.numba_symbols import (
    REVIEWED,
    EmissionSite,
    SourceScan,
    code_generation_calls,
    external_symbols,
    numba_root,
    registered_helpers,
    source_scan,
)
from alloccheck.config import load_config
from alloccheck.effects import Effect, Occasion, Path
from alloccheck.errors import ContractError


def effects_of(symbol, occasion=None):
    contract = load_contracts().lookup(symbol)
    assert contract is not None, symbol
    return {item.effect for item in contract.effects if occasion in (None, item.occasion)}


# --- the tables against Numba ----------------------------------------------------------------


def test_every_symbol_that_numba_can_emit_has_a_contract():
    table = load_contracts()
    missing = {s: origin for s, origin in external_symbols().items() if table.lookup(s) is None}
    assert not missing, (
        "THE CONTRACT TABLES ARE INCOMPLETE. Numba can emit these symbols, of which nothing is "
        f"said (symbol: where it was found): {missing}. Read what each does and add it to "
        "src/alloccheck/analysis/contract_tables/."
    )


def test_no_contract_is_for_a_symbol_that_numba_cannot_emit():
    derived = external_symbols()
    stale = {
        entry.symbol: entry.origin
        for entry in load_contracts().entries
        if not entry.is_pattern and entry.symbol not in derived
    }
    assert not stale, (
        "THE CONTRACT TABLES ARE STALE. Nothing emits these symbols any more (symbol: table): "
        f"{stale}. Remove them, or add what emits them to compile/numba_symbols.py."
    )


def test_each_pattern_is_for_names_that_cannot_be_listed():
    # Libraries that need not be installed, or another architecture.
    elsewhere = {"__svml_*": "__svml_sin4", "__aarch64_*": "__aarch64_ldadd8_relax"}
    for entry in load_contracts().entries:
        if entry.is_pattern:
            example = elsewhere.get(entry.symbol)
            assert example or any(entry.matches(symbol) for symbol in external_symbols())


def test_each_computed_name_in_numba_was_looked_at():
    scan = source_scan()
    assert scan.unreviewed == ()
    assert scan.stale_reviews == ()


def test_an_unseen_computed_name_is_reported():
    site = EmissionSite("core/new.py", "emit", 3, "'PyNew_%s' % name")
    scan = SourceScan({}, (site,))
    assert scan.unreviewed == (site,)
    assert len(scan.stale_reviews) == len(REVIEWED)


@pytest.mark.parametrize(
    ("symbol", "found_by"),
    [
        ("numba_xxgemm", registered_helpers),
        ("NRT_MemInfo_call_dtor", registered_helpers),
        ("numba_make_generator", registered_helpers),
        ("PyNumber_InPlaceXor", lambda: source_scan().names),
        ("PyLong_FromUnsignedLongLong", lambda: source_scan().names),
        ("do_scheduling_unsigned", lambda: source_scan().names),
        ("NRT_MemInfo_varsize_realloc", lambda: source_scan().names),
        ("hypotf", lambda: source_scan().names),
        ("numba_nextafterf", lambda: source_scan().names),
        ("fmod", code_generation_calls),
        ("sincos", code_generation_calls),
        ("memset", code_generation_calls),
    ],
)
def test_each_way_of_finding_symbols_works(symbol, found_by):
    assert symbol in found_by()


# --- the tables against the C sources --------------------------------------------------------

HELPER_SOURCES = (
    "core/runtime/nrt.cpp",
    "core/runtime/_nrt_python.c",
    "_helperlib.c",
    "_random.c",
    "_lapack.c",
    "cext/dictobject.c",
    "cext/listobject.c",
    "cext/setobject.c",
)


@cache
def c_functions():
    """Bodies of the C functions that Numba ships, by name; file-static names are per file."""
    bodies = {}
    for name in HELPER_SOURCES:
        text = (numba_root() / name).read_text()
        text = re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\])*\"", " ", text, flags=re.S)
        # What only AOT compilation builds, and debugging output that is compiled out.
        text = re.sub(r"#ifdef PYCC_COMPILING.*?#else", "", text, flags=re.S)
        text = re.sub(r"^(NUMBA_EXPORT_FUNC|NUMBA_GLOBAL_FUNC)\(", "EXPORT<", text, flags=re.M)
        text = re.sub(r"^EXPORT<.*$", "exported", text, flags=re.M)
        text = re.sub(r"NRT_Debug\(.*?\)\s*;", "", text, flags=re.S)
        pattern = r"^(?=\w)[^\n#{};]*?\b(\w+)\s*\(([^;{}]*)\)\s*\{(.*?)^\}"
        for match in re.finditer(pattern, text, flags=re.S | re.M):
            bodies.setdefault((name, match[1]), match[3])
            bodies.setdefault(match[1], match[3])
            bodies.setdefault(("file of", match[1]), name)
    return bodies


DIRECT = {
    Effect.ALLOCATE: r"\b(malloc|realloc|calloc|PyMem_Raw\w*alloc|PyMem_Malloc)\s*\(",
    Effect.FREE: r"\b(free|realloc|PyMem_RawFree|PyMem_Free)\s*\(",
    Effect.PYTHON: (
        r"\b_?Py(?!_|Complex_(?:real|imag))(?!Mem_Raw)[A-Z]\w*\s*\(|\bPy_X?(?:DECREF|INCREF)\b|"
        r"\bPyGILState|\bget_c(?:blas|lapack)_\w+|\bENSURE_VALID_\w+"
    ),
    Effect.BLOCK: r"\bprintf\s*\(|\bfprintf\s*\(|\bPyGILState_Ensure|\bget_c(?:blas|lapack)_\w+",
    "calls back": r"methods\.\w+\s*\(|->dtor\s*\(",
}

ENDS_THE_PROCESS = {"nrt_fatal_error"}

# A table that was made a moment ago holds no entry and no functions to call.
EMPTY_TABLES = {"numba_dict_new_sized", "numba_set_new", "numba_set_new_sized"}


def found_in_source(function):
    """What a C function may do, by the calls that its body and those it calls hold."""
    bodies = c_functions()
    seen, waiting, found = set(), [(bodies["file of", function], function)], set()
    while waiting:
        where, name = waiting.pop()
        if (where, name) in seen:
            continue
        seen.add((where, name))
        body = bodies.get((where, name), bodies.get(name, ""))
        found |= {what for what, pattern in DIRECT.items() if re.search(pattern, body)}
        here = where if (where, name) in bodies else bodies.get(("file of", name), where)
        called = set(re.findall(r"\b([A-Za-z_]\w*)\s*\(", body)) - ENDS_THE_PROCESS
        waiting += [(here, c) for c in called if (here, c) in bodies or c in bodies]
    return found


HELPERS_IN_C = sorted(symbol for symbol in registered_helpers() if symbol in c_functions())


def test_the_c_sources_were_understood():
    assert len(HELPERS_IN_C) > 110
    assert found_in_source("numba_list_append") == {Effect.ALLOCATE, Effect.FREE, "calls back"}
    assert found_in_source("numba_dict_length") == set()
    assert found_in_source("NRT_MemInfo_alloc_aligned") == {Effect.ALLOCATE}
    assert Effect.PYTHON in found_in_source("numba_get_np_random_state")


@pytest.mark.parametrize("symbol", HELPERS_IN_C)
def test_a_contract_admits_all_that_the_c_source_does(symbol):
    contract = load_contracts().lookup(symbol)
    found = found_in_source(symbol)
    admitted = {item.effect for item in contract.effects}
    if contract.calls_back or symbol in EMPTY_TABLES:
        admitted.add("calls back")
    assert found <= admitted, f"{symbol} does more than its contract says: {found - admitted}"


@pytest.mark.parametrize("table", ["dict", "list", "set"])
def test_statuses_of_containers_are_those_of_their_source(table):
    text = (numba_root() / f"cext/{table}object.c").read_text()
    names = dict(re.findall(r"^    ((?:LIST_)?(?:OK|ERR)\w*) = (-?\d+)", text, flags=re.M))
    for symbol in HELPERS_IN_C:
        contract = load_contracts().lookup(symbol)
        if not symbol.startswith(f"numba_{table}_") or contract.statuses is None:
            continue
        body = c_functions()[symbol]
        returned = {int(names[name]) for name in re.findall(r"return (\w+)", body) if name in names}
        assert returned <= set(contract.statuses), symbol


def test_each_source_can_be_looked_up():
    upstream_only = "numba/np/ufunc/"
    for entry in load_contracts().entries:
        for place in entry.source.split("; "):
            origin, _, _ = place.partition(":")
            if not origin.startswith("numba/"):
                assert origin in {"glibc", "gcc", "compiler-rt", "CPython", "OpenBLAS"}, place
                continue
            assert re.fullmatch(r"numba/[\w/.]+:\d+", place), place
            path = numba_root().parent / origin
            if origin.startswith(upstream_only) and path.suffix in {".c", ".cpp"}:
                continue
            line = path.read_text().splitlines()[int(place.rpartition(":")[2]) - 1]
            if path.suffix in {".c", ".cpp", ".h"}:
                stem = entry.symbol.removeprefix("numba_")
                assert re.search(rf"(?<![A-Za-z0-9]){stem}\b", line), (entry.symbol, place, line)


# --- facts that the tables must state --------------------------------------------------------

EVERY, FIRST, THREAD = Occasion


@pytest.mark.parametrize(
    ("symbol", "occasion", "effects"),
    [
        ("NRT_Allocate", EVERY, {"allocate"}),
        ("NRT_MemInfo_alloc_aligned", EVERY, {"allocate"}),
        ("NRT_MemInfo_call_dtor", EVERY, {"free", "python", "block"}),
        ("numba_dict_lookup", None, set()),
        ("numba_dict_insert", EVERY, {"allocate", "free"}),
        ("numba_list_append", EVERY, {"allocate", "free"}),
        ("numba_xxgemm", EVERY, {"allocate", "free", "block"}),
        ("numba_xxdot", EVERY, {"block"}),
        ("numba_xxdot", FIRST, {"allocate", "free", "python"}),
        ("numba_ez_gesdd", EVERY, {"allocate", "free", "block", "python"}),
        ("numba_get_np_random_state", EVERY, set()),
        ("numba_get_np_random_state", THREAD, {"allocate", "free", "block", "python"}),
        ("numba_parallel_for", EVERY, {"allocate", "free", "block"}),
        ("get_num_threads", THREAD, {"allocate"}),
        ("PyObject_Str", EVERY, {"allocate", "free", "block", "python"}),
        ("numba_gil_ensure", EVERY, {"allocate", "free", "block", "python"}),
        ("printf", EVERY, {"allocate", "free", "block"}),
        ("sin", None, set()),
        ("lgammaf", None, set()),
        ("memcpy", None, set()),
        ("__svml_sin4", EVERY, {"unknown"}),
        ("PyExc_ValueError", None, set()),
    ],
)
def test_known_effects(symbol, occasion, effects):
    assert effects_of(symbol, occasion) == {Effect(name) for name in effects}


@pytest.mark.parametrize(
    "symbol", ["abort", "_exit", "__stack_chk_fail", "__assert_fail", "numba_fatal_error"]
)
def test_what_ends_the_process_is_marked(symbol):
    assert load_contracts().lookup(symbol).path is Path.DIVERGE


@pytest.mark.parametrize("symbol", ["numba_dict_lookup", "NRT_decref", "numba_parallel_for"])
def test_what_calls_back_is_marked(symbol):
    assert load_contracts().lookup(symbol).calls_back


def test_an_unknown_symbol_has_no_contract():
    for symbol in ("my_function", "sin_", "numba_", "PyNew_Function", ""):
        assert load_contracts().lookup(symbol) is None


# --- reading tables --------------------------------------------------------------------------

GOOD = {"effects": ["block"], "reason": "waits for the device", "source": "device.c:12"}


def test_an_entry_is_read_in_full():
    text = """
    [[contract]]
    symbol = "device_wait"
    effects = [{ effect = "python", occasion = "first call" }, "block"]
    occasion = "first call per thread"
    condition = "when no data is there"
    calls_back = true
    path = "raise"
    statuses = [0, -1]
    override = true
    reason = "waits for the device"
    source = "device.c:12"
    """
    assert parse_contracts(text, "device.toml") == (
        Contract(
            symbol="device_wait",
            effects=(
                ContractEffect(Effect.PYTHON, Occasion.FIRST_CALL),
                ContractEffect(Effect.BLOCK, Occasion.FIRST_CALL_PER_THREAD),
            ),
            reason="waits for the device",
            source="device.c:12",
            condition="when no data is there",
            calls_back=True,
            path=Path.RAISE,
            statuses=(0, -1),
            override=True,
            origin="device.toml",
        ),
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"efects": []}, "unknown key `efects`"),
        ({"effects": ["alocate"]}, "`effects`: expected one of `allocate`.*found 'alocate'"),
        ({"effects": "block"}, "`effects`: expected a list, found 'block'"),
        ({"effects": [{"effect": "block"}]}, "`effects`: expected { effect = ..., occasion"),
        ({"effects": ["block", "block"]}, "`block` is there twice"),
        ({"effects": None}, "`effects`: expected a list"),
        ({"occasion": "sometimes"}, "`occasion`: expected one of `every call`.*'sometimes'"),
        ({"effects": [], "occasion": "first call"}, "no effect that it could apply to"),
        ({"path": "nowhere"}, "`path`: expected one of `return`"),
        ({"statuses": [0, 0]}, "`statuses`: expected a list of different integers"),
        ({"statuses": [True]}, "`statuses`: expected a list of different integers"),
        ({"statuses": []}, "`statuses`: expected a list of different integers"),
        ({"calls_back": 1}, "`calls_back`: expected true or false"),
        ({"reason": "  "}, "expected a `reason`, found none. Say in a sentence"),
        ({"source": ""}, "expected a `source`, found none. Name the file and line"),
        ({"condition": 3}, "`condition`: expected a text"),
        ({"symbol": "x"}, "the symbol is the table's name already"),
    ],
)
def test_a_malformed_entry_is_refused(change, complaint):
    with pytest.raises(ContractError, match=rf"mine\.toml: contract `device_wait`: .*{complaint}"):
        contracts_from_mapping({"device_wait": {**GOOD, **change}}, "mine.toml")


def test_a_missing_part_is_refused():
    for key in GOOD:
        entry = {name: value for name, value in GOOD.items() if name != key}
        with pytest.raises(ContractError, match=f"expected .*`{key}`, found none"):
            contracts_from_mapping({"device_wait": entry}, "mine.toml")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[contract", "expected TOML"),
        ("[other]", "expected only .*found `other`"),
        ("contract = 3", "expected an array of tables"),
        ("[[contract]]\neffects = []", "contract number 1: expected either `symbol` or `symbols`"),
        ("[[contract]]\nsymbols = []", "expected a list of symbols"),
        ('[[contract]]\nsymbol = "a b"', "expected the name of a symbol, found 'a b'"),
        ('[[contract]]\nsymbol = "**"', "is every symbol there is"),
        (
            '[[contract]]\nsymbols = ["a", "a"]\neffects = []\nreason = "r"\nsource = "s"',
            "one contract per symbol",
        ),
    ],
)
def test_a_malformed_table_is_refused(text, complaint):
    with pytest.raises(ContractError, match=rf"^mine\.toml: .*{complaint}"):
        parse_contracts(text, "mine.toml")


def test_an_entry_that_is_no_table_is_refused():
    with pytest.raises(ContractError, match="contract `f`: expected a table"):
        contracts_from_mapping({"f": "clean"}, "mine.toml")


def test_the_built_in_tables_name_their_file():
    names = {
        item.name for item in files("alloccheck.analysis").joinpath("contract_tables").iterdir()
    }
    origins = {entry.origin for entry in load_contracts().entries}
    assert origins == {name for name in names if name.endswith(".toml")}
    assert FilePath(numba_symbols.__file__).exists()


# --- precedence ------------------------------------------------------------------------------


def contract(symbol, *effects, **others):
    entry = {**GOOD, "effects": list(effects), **others}
    return contracts_from_mapping({symbol: entry}, "mine.toml")[0]


def test_exact_comes_before_pattern_and_the_most_specific_pattern_first():
    entries = [
        contract("dev_*", "block"),
        contract("dev_read_*", "allocate"),
        contract("dev_read_fast"),
        contract("dev_*_fast", "free"),
    ]
    for some in (entries, entries[::-1]):
        table = load_contracts(some)
        found = {
            symbol: table.lookup(symbol).symbol
            for symbol in ("dev_open", "dev_read_slow", "dev_read_fast", "dev_write_fast")
        }
        assert found == {
            "dev_open": "dev_*",
            "dev_read_slow": "dev_read_*",
            "dev_read_fast": "dev_read_fast",
            "dev_write_fast": "dev_*_fast",
        }


@pytest.mark.parametrize("symbol", ["malloc", "mall*", "__svml_sin4", "__svml_s*", "*svml*"])
def test_a_users_contract_must_say_that_it_overrides(symbol):
    with pytest.raises(ContractError, match=r"already speak of .*override = true"):
        load_contracts([contract(symbol)])


@pytest.mark.parametrize(
    ("symbol", "asked"),
    [("malloc", "malloc"), ("mall*", "malloc"), ("__svml_sin4", "__svml_sin4")],
)
def test_an_override_holds_and_is_reported(symbol, asked):
    mine = contract(symbol, "block", override=True)
    table = load_contracts([mine])
    assert table.lookup(asked) is mine
    [override] = table.overrides
    assert override.contract is mine
    assert load_contracts().lookup(asked) in override.replaced


def test_an_override_hides_nothing_else():
    table = load_contracts([contract("malloc", override=True)])
    assert table.lookup("calloc") == load_contracts().lookup("calloc")
    assert load_contracts().overrides == ()
    assert load_contracts().lookup("malloc").effects != ()


def test_two_contracts_of_a_user_for_one_symbol_are_refused():
    with pytest.raises(
        ContractError, match=r"one contract per symbol, found another in mine\.toml"
    ):
        load_contracts([contract("dev_open"), contract("dev_open", "block")])


PATTERNS = st.text(alphabet="ab*", min_size=1, max_size=5)


@settings(max_examples=200, deadline=None)
@given(PATTERNS, st.text(alphabet="ab", min_size=1, max_size=6))
def test_a_pattern_matches_what_its_regular_expression_matches(pattern, symbol):
    regular = re.escape(pattern).replace(r"\*", ".*")
    assert Contract(pattern, (), "", "").matches(symbol) == bool(re.fullmatch(regular, symbol))


@settings(max_examples=200, deadline=None)
@given(PATTERNS, PATTERNS)
def test_overlap_is_found_whenever_a_common_symbol_exists(one, other):
    from itertools import product

    regulars = [re.compile(re.escape(p).replace(r"\*", ".*")) for p in (one, other)]
    # Two patterns with n and m literal characters share a symbol of at most n + m, if any.
    longest = len(one.replace("*", "")) + len(other.replace("*", ""))
    common = any(
        all(regular.fullmatch("".join(letters)) for regular in regulars)
        for length in range(longest + 1)
        for letters in product("ab", repeat=length)
    )
    assert Contract(one, (), "", "").matches(other) == common


# --- the documentation -----------------------------------------------------------------------

DOCUMENT = FilePath(__file__).parents[1] / "docs" / "contracts.md"


def test_the_examples_of_the_documentation_run():
    assert doctest.testfile(str(DOCUMENT), module_relative=False) == (0, 3)


def test_the_tables_of_the_documentation_are_accepted(tmp_path):
    blocks = re.findall(r"```toml\n(.*?)```", DOCUMENT.read_text(), flags=re.S)
    builtin = tomllib.loads(blocks[0])
    [shown] = parse_contracts(blocks[0], "numba_containers.toml")
    assert shown == load_contracts().lookup(builtin["contract"][0]["symbol"])
    (tmp_path / "pyproject.toml").write_text("\n".join(blocks[1:]))
    table = load_contracts(user_contracts(load_config(tmp_path)))
    assert [override.contract.symbol for override in table.overrides] == ["numba_xxdot"]
    assert table.lookup("board_open").effects == (ContractEffect(Effect.BLOCK),)


def test_symbols_are_found_without_reading_all_tables() -> None:
    short, whole = contract_lookup(), load_contracts().lookup
    asked = {entry.symbol for entry in load_contracts().entries}
    asked |= {one.replace("*", "anything") for one in asked}
    asked |= {"no such symbol", "PyExc_", "effects", "source", 'quoted"name', ""}
    assert {one: short(one) for one in asked} == {one: whole(one) for one in asked}


def test_tables_spell_symbols_plainly() -> None:
    texts = "".join(
        one.read_text(encoding="utf-8")
        for one in files("alloccheck.analysis").joinpath("contract_tables").iterdir()
        if one.name.endswith(".toml")
    )
    assert all(f'"{entry.symbol}"' in texts for entry in load_contracts().entries)

"""LLVM's pass managers are freed, which llvmlite's own are not."""

import os
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from alloccheck.compile.pass_managers import freed

TEXT = "define i64 @f(i64 %x) {\n  %y = add i64 %x, 1\n  ret i64 %y\n}\n"
MANAGERS = 400


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run_once(machine, module, kind):
    options = llvm.create_pipeline_tuning_options(3)
    builder = llvm.create_pass_builder(machine, options)
    manager = freed(getattr(builder, kind)())
    subject = module if kind == "getModulePassManager" else module.get_function("f")
    manager.run(subject, builder)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("kind", ["getModulePassManager", "getFunctionPassManager"])
def test_what_a_pass_manager_held_is_given_back(kind):
    llvm.initialize_native_target()
    machine = llvm.Target.from_default_triple().create_target_machine()
    module = llvm.parse_assembly(TEXT)
    for _ in range(50):
        run_once(machine, module, kind)
    before = resident()
    for _ in range(MANAGERS):
        run_once(machine, module, kind)
    # llvmlite's keep 34 KB or more each; the builder's own few hundred bytes are not ours to free.
    assert (resident() - before) / MANAGERS < 8192


def test_the_users_manager_is_not_used_any_more():
    manager = llvm.create_new_module_pass_manager()
    ours = freed(manager)
    assert manager.closed
    assert not ours.closed

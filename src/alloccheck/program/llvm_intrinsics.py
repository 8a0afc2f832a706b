"""The LLVM intrinsics that have no effect of their own: an explicit list, nothing else passes.

Calls that code generation makes for some of them (``memcpy``, ``sin``, ...) are undefined
symbols of the object file and are checked there. Knows nothing of anything else.
"""

from __future__ import annotations

from functools import lru_cache

_EXACT_NAMES = """
    assume donothing sideeffect trap ubsantrap pseudoprobe
    experimental.noalias.scope.decl var.annotation annotation prefetch
    stacksave stackrestore returnaddress frameaddress sponentry
    readcyclecounter readsteadycounter thread.pointer
    va_start va_end va_copy vscale fake.use get.rounding set.rounding
"""
_FAMILY_NAMES = """
    lifetime.start lifetime.end invariant.start invariant.end launder.invariant.group
    strip.invariant.group dbg assume expect expect.with.probability is.constant objectsize
    thread.pointer
    memcpy memcpy.inline memmove memset memset.inline ssa.copy ptr.annotation annotation
    var.annotation prefetch ptrmask threadlocal.address stacksave stackrestore
    abs smax smin umax umin scmp ucmp bitreverse bswap ctpop ctlz cttz fshl fshr
    sadd.with.overflow uadd.with.overflow ssub.with.overflow usub.with.overflow
    smul.with.overflow umul.with.overflow sadd.sat uadd.sat ssub.sat usub.sat sshl.sat ushl.sat
    smul.fix umul.fix smul.fix.sat umul.fix.sat sdiv.fix udiv.fix sdiv.fix.sat udiv.fix.sat
    sqrt powi sin cos tan asin acos atan atan2 sinh cosh tanh sincos sincospi modf pow exp exp2
    exp10 log log10 log2 fma fmuladd fabs minnum maxnum minimum maximum minimumnum maximumnum
    copysign floor ceil trunc rint nearbyint round roundeven lround llround lrint llrint ldexp
    frexp canonicalize is.fpclass arithmetic.fence fptosi.sat fptoui.sat
    convert.to.fp16 convert.from.fp16
    vector.reduce vector.insert vector.extract vector.reverse vector.splice vector.interleave2
    vector.interleave3 vector.interleave4 vector.interleave5 vector.interleave6
    vector.interleave7 vector.interleave8 vector.deinterleave2 vector.deinterleave3
    vector.deinterleave4 vector.deinterleave5 vector.deinterleave6 vector.deinterleave7
    vector.deinterleave8 vector.partial.reduce.add vector.partial.reduce.fadd
    vector.compress vector.find.last.active vector.match stepvector vscale vp
    masked.load masked.store masked.gather masked.scatter masked.expandload masked.compressstore
    masked.udiv masked.sdiv masked.urem masked.srem
    matrix.column.major.load matrix.column.major.store matrix.multiply matrix.transpose
    get.active.lane.mask loop.dependence.war.mask loop.dependence.raw.mask clmul fptrunc.round
    load.relative fake.use experimental.constrained experimental.cttz.elts
    experimental.get.vector.length experimental.vector experimental.vp experimental.memset.pattern
    x86.atomic.add.cc x86.atomic.sub.cc x86.atomic.and.cc x86.atomic.or.cc x86.atomic.xor.cc
    x86.sse x86.sse2 x86.sse3 x86.ssse3 x86.sse41 x86.sse42 x86.avx x86.avx2 x86.avx512
    x86.fma x86.f16c x86.bmi aarch64.neon
"""
_EXACT = frozenset(f"llvm.{name}" for name in _EXACT_NAMES.split())
_FAMILIES = tuple(f"llvm.{name}." for name in _FAMILY_NAMES.split())
"""An overloaded intrinsic: its name goes on with its types."""


@lru_cache(maxsize=4096)
def is_harmless_intrinsic(symbol: str) -> bool:
    """Return whether an intrinsic only computes, hints or moves bytes.

    Examples
    --------
    >>> is_harmless_intrinsic("llvm.smax.i64")
    True
    >>> is_harmless_intrinsic("llvm.coro.begin"), is_harmless_intrinsic("llvm.smaxx")
    (False, False)
    """
    return symbol in _EXACT or symbol.startswith(_FAMILIES)

// Rust functions whose effects are known by construction; see truth.c for EXPECT. Built as a `cdylib`.
// What a panic does (its message, the hook, unwinding) happens only when the call ends by it.
#![allow(static_mut_refs, dead_code, improper_ctypes_definitions)]
use std::cell::Cell;
use std::hint::black_box;
use std::os::raw::{c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

extern "C" {
    fn malloc(n: usize) -> *mut c_void;
    fn qsort(base: *mut c_void, n: usize, size: usize, f: extern "C" fn(*const c_void, *const c_void) -> c_int);
    fn snprintf(out: *mut c_char, n: usize, form: *const c_char, ...) -> c_int;
    fn longjmp(place: *mut c_void, value: c_int) -> !;
}

#[no_mangle] pub static SINK: AtomicUsize = AtomicUsize::new(0);
#[inline(never)] fn grow(n: usize) -> f64 { SINK.store(unsafe { malloc(n + 1) } as usize, Ordering::Relaxed); 1.0 }
#[inline(never)] fn middle(n: usize) -> f64 { grow(n ^ 1) * 2.0 }
#[inline(never)] fn plus(x: f64) -> f64 { x + 1.0 }
#[inline(never)] fn twice(x: f64) -> f64 { x * 2.0 }
#[inline(never)] fn less(x: f64) -> f64 { x - 3.0 }
#[inline(never)] fn same(x: f64) -> f64 { x }
#[inline(never)] fn greedy(x: f64) -> f64 { grow(x as usize) }

// --- direct, indirect and tail calls ---
// EXPECT(clean)
#[no_mangle] pub extern "C" fn plain(x: f64) -> f64 { x * 2.0 + 1.0 }
// EXPECT(allocate, block)
#[no_mangle] pub extern "C" fn direct(n: usize) -> f64 { SINK.store(unsafe { malloc(n) } as usize, Ordering::Relaxed); 1.0 }
// EXPECT(allocate, block)
#[no_mangle] pub extern "C" fn indirect(n: usize) -> f64 { middle(n) - 1.0 }
// EXPECT(allocate, block)
#[no_mangle] pub extern "C" fn tail(n: usize) -> f64 { grow(n) }
// EXPECT(allocate, block, more)
#[no_mangle] pub extern "C" fn boxed(x: f64) -> *mut f64 { Box::into_raw(Box::new(x)) }
// EXPECT(free, block, more)
#[no_mangle] pub extern "C" fn dropped(p: *mut f64) { drop(unsafe { Box::from_raw(p) }) }

// --- switches ---
#[derive(Clone, Copy)] #[repr(u8)] pub enum Kind { A, B, C, D, E, F }
// EXPECT(clean)
#[no_mangle] pub extern "C" fn matched(k: Kind, x: f64) -> f64 {
    match k {
        Kind::A => x.sin(), Kind::B => x.cos() + 1.0, Kind::C => x.exp() * x,
        Kind::D => x.ln() - 2.0, Kind::E => x.tan() / 3.0, Kind::F => x.atan() + 7.0,
    }
}
// EXPECT(allocate, block)
#[no_mangle] pub extern "C" fn matched_allocating(k: Kind, x: f64) -> f64 {
    match k {
        Kind::A => x.sin(), Kind::B => x.cos() + 1.0, Kind::C => x.exp() * x,
        Kind::D => x.ln() - 2.0, Kind::E => grow(5), Kind::F => x.atan() + 7.0,
    }
}
// EXPECT(allocate, block)
#[no_mangle] pub extern "C" fn sparse_allocating(k: i64, x: f64) -> f64 {
    match k { 1 => x.sin(), 1000 => x.cos(), 50000 => x.exp(), 1234567 => grow(2), 99999999999 => x.ln(), _ => x }
}

// --- pointers to functions, trait objects ---
type Unary = fn(f64) -> f64;
// EXPECT(dispatch)
#[no_mangle] pub extern "C" fn argument(f: extern "C" fn(f64) -> f64, x: f64) -> f64 { f(x) + 1.0 }
static TABLE: [Unary; 4] = [plus, twice, less, same];
static GREEDY_TABLE: [Unary; 4] = [plus, twice, greedy, same];
static mut OPEN_TABLE: [Unary; 4] = [plus, twice, less, same];
// EXPECT(clean)
#[no_mangle] pub extern "C" fn constant_table(k: usize, x: f64) -> f64 { unsafe { TABLE.get_unchecked(k & 3)(x) + 1.0 } }
// EXPECT(allocate, block)
#[no_mangle] pub extern "C" fn greedy_constant_table(k: usize, x: f64) -> f64 { unsafe { GREEDY_TABLE.get_unchecked(k & 3)(x) + 1.0 } }
// Whatever is called may panic, which `extern "C"` turns into death.
// EXPECT(dispatch, more)
#[no_mangle] pub extern "C" fn writable_table(k: usize, x: f64) -> f64 { unsafe { OPEN_TABLE.get_unchecked(k & 3)(x) + 1.0 } }
// Exported, so that nobody may assume that the table keeps its content.
#[no_mangle] pub extern "C" fn write_table(k: usize, f: Unary) { unsafe { *OPEN_TABLE.get_unchecked_mut(k & 3) = f } }
pub trait Shape { fn area(&self) -> f64; }
struct Square(f64);
struct Sack(f64);
impl Shape for Square { #[inline(never)] fn area(&self) -> f64 { self.0 * self.0 } }
impl Shape for Sack { #[inline(never)] fn area(&self) -> f64 { grow(self.0 as usize) } }
// EXPECT(dispatch, more)
#[no_mangle] pub extern "C" fn virtual_call(s: &dyn Shape) -> f64 { s.area() + 1.0 }
// EXPECT(clean)
#[no_mangle] pub extern "C" fn known_shape(x: f64) -> f64 { let s = Square(x); s.area() + 1.0 }
// EXPECT(allocate, block)
#[no_mangle] pub extern "C" fn known_sack(x: f64) -> f64 { let s = Sack(x); s.area() + 1.0 }

// --- thread-local variables ---
thread_local! { static PLAIN: Cell<f64> = const { Cell::new(1.0) }; }
// EXPECT(allocate/first call per thread, block/first call per thread)
#[no_mangle] pub extern "C" fn thread_local(x: f64) -> f64 { PLAIN.with(|p| { p.set(p.get() + x); p.get() }) }

// --- panics ---
// EXPECT(raise, raise:allocate)
#[no_mangle] pub extern "C-unwind" fn panics(x: f64) -> f64 { if x < 0.0 { panic!("negative: {}", x) } x }
// EXPECT(raise, raise:allocate)
#[no_mangle] pub extern "C-unwind" fn checked(p: &[f64; 8], i: usize) -> f64 { p[i] }
// EXPECT(allocate, more)
#[no_mangle] pub extern "C" fn caught(x: f64) -> f64 {
    std::panic::catch_unwind(|| { if black_box(x) < 0.0 { panic!() } x }).unwrap_or_else(|_| grow(3))
}
// A panic never leaves `extern "C"`: the process ends.
// EXPECT(raise, raise:allocate)
#[no_mangle] pub extern "C" fn checked_for_c(p: &[f64; 8], i: usize) -> f64 { p[i] }
// EXPECT(raise, raise:allocate, allocate, block)
#[no_mangle] pub extern "C-unwind" fn grows_anyway(x: f64) -> f64 { grow(4); if x < 0.0 { panic!() } x }
// EXPECT(raise, raise:allocate)
#[no_mangle] pub extern "C-unwind" fn grows_before_it_panics(x: f64) -> f64 { if x < 0.0 { grow(4); panic!() } x }
// EXPECT(clean)
#[no_mangle] pub extern "C" fn never_panics(x: f64) -> f64 { std::panic::catch_unwind(|| x + 1.0).unwrap_or(3.0) }
// EXPECT(clean)
#[no_mangle] pub extern "C" fn aborting(x: f64) -> f64 { if x < 0.0 { std::process::abort() } x }
// EXPECT(raise)
#[no_mangle] pub unsafe extern "C" fn jump_away(place: *mut c_void, x: f64) -> f64 { if x < 0.0 { longjmp(place, 1) } x }

// --- inline assembly, callbacks, variadic calls ---
#[inline(always)] unsafe fn kernel(number: c_long, a: c_long) -> c_long {
    let r: c_long;
    std::arch::asm!("syscall", inlateout("rax") number => r, in("rdi") a, out("rcx") _, out("r11") _);
    r
}
// EXPECT(clean)
#[no_mangle] pub extern "C" fn own_pid() -> c_long { unsafe { kernel(39, 0) } }
// EXPECT(allocate)
#[no_mangle] pub extern "C" fn map() -> c_long { unsafe { kernel(12, 0) } }
// EXPECT(unknown)
#[no_mangle] pub extern "C" fn any_system_call(n: c_long) -> c_long { unsafe { kernel(n, 0) } }
extern "C" fn ordered(a: *const c_void, b: *const c_void) -> c_int {
    let (x, y) = unsafe { (*(a as *const f64), *(b as *const f64)) };
    (x > y) as c_int - (x < y) as c_int
}
extern "C" fn greedy_order(a: *const c_void, b: *const c_void) -> c_int { grow(3); (a < b) as c_int }
// EXPECT(clean)
#[no_mangle] pub unsafe extern "C" fn small_sort(a: *mut f64) -> f64 { qsort(a as *mut c_void, 5, 8, ordered); *a }
// EXPECT(allocate, block)
#[no_mangle] pub unsafe extern "C" fn greedy_sort(a: *mut f64) -> f64 { qsort(a as *mut c_void, 5, 8, greedy_order); *a }
// EXPECT(allocate, block, more)
#[no_mangle] pub unsafe extern "C" fn variadic(a: *mut c_char, x: f64) -> c_int { snprintf(a, 40, b"%f\0".as_ptr() as *const c_char, x) }

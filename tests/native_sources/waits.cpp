// What C++'s library makes of its own words for locks, waiting and memory; see waits.c.
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <thread>

using namespace std::chrono_literals;

static std::mutex mutex;
static std::timed_mutex timed;
static std::recursive_mutex recursive;
static std::shared_timed_mutex shared;
static std::condition_variable condition;

struct Act {
    const char *name;
    long (*act)();
};

static const Act acts[] = {
    {"mutex", [] { std::lock_guard<std::mutex> held(mutex); return 0l; }},
    {"recursive_mutex", [] { std::lock_guard<std::recursive_mutex> held(recursive); return 0l; }},
    {"timed_mutex", [] { return timed.try_lock_for(1ms) ? (timed.unlock(), 0l) : 1l; }},
    {"shared_mutex", [] { return shared.try_lock_shared_for(1ms) ? (shared.unlock_shared(), 0l) : 1l; }},
    {"unique_of_shared", [] { std::unique_lock<std::shared_timed_mutex> held(shared); return 0l; }},
    {"condition_variable", [] {
        std::unique_lock<std::mutex> held(mutex, std::try_to_lock);
        return condition.wait_for(held, 1us) == std::cv_status::timeout ? 0l : 1l;
    }},
    {"call_once", [] { std::once_flag once; std::call_once(once, [] {}); return 0l; }},
    {"sleep_for", [] { std::this_thread::sleep_for(1us); return 0l; }},
    {"yield", [] { std::this_thread::yield(); return 0l; }},
    {"thread", [] { std::thread([] {}).join(); return 0l; }},
    // Not by a new-expression, which the compiler may leave out with its delete.
    {"new", [] { ::operator delete(::operator new(48)); return 0l; }},
    {"new_aligned", [] {
        const std::align_val_t wide{256};
        ::operator delete(::operator new(256, wide), wide);
        return 0l;
    }},
};

extern "C" const char *name_of(long which) {
    return which < long(sizeof acts / sizeof *acts) ? acts[which].name : nullptr;
}

extern "C" long run(long which) { return acts[which].act(); }

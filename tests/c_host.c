/* A host in C, as audio servers are: calls a callback from a thread of its own.
 *
 * The thread is made with pthread_create, never seen by Python, and is joined by a caller that may
 * hold the interpreter's lock all the while. With the interposer preloaded, the calls happen
 * inside an open window of that thread, and `events` says how many counted calls they made. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define FRAMES 64

/* The beginning of the interposer's ledger (interposer.c). */
struct ledger {
    int64_t armed, depth, sees_system_calls, complete;
    void *stack_top;
    uint64_t bytes, event_count;
};

typedef int32_t (*portaudio_t)(const float *, float *, uint64_t, const void *, uint64_t, void *);
typedef int32_t (*jack_t)(uint32_t, void *);
typedef double (*unary_t)(double);
typedef int32_t (*unary_status_t)(double *, double);
typedef int32_t (*reader_t)(void);
/* As ODEPACK's LSODA calls its right-hand side: all by address. */
typedef void (*rhs_t)(int32_t *, double *, double *, double *);

struct work {
    int kind;
    void *callback, *reader;
    void *data;
    int64_t calls;
    double total;      /* of what was returned or written */
    int64_t events;    /* counted calls in the window; -1 without interposer */
    int64_t windows_complete;
    int32_t first, last;
};

enum { PORTAUDIO, JACK, UNARY, UNARY_STATUS, ODE };

/* One step of the classical Runge-Kutta method, of two equations. */
static void step(rhs_t f, double *t, double *y, double h) {
    static const double part[4] = {0.0, 0.5, 0.5, 1.0}, weight[4] = {1.0, 2.0, 2.0, 1.0};
    int32_t n = 2;
    double k[2] = {0.0, 0.0}, sum[2] = {0.0, 0.0};
    for (int s = 0; s < 4; s++) {
        double at = *t + part[s] * h, z[2], d[2];
        for (int i = 0; i < 2; i++)
            z[i] = y[i] + part[s] * h * k[i];
        f(&n, &at, z, d);
        for (int i = 0; i < 2; i++) {
            k[i] = d[i];
            sum[i] += weight[s] * d[i];
        }
    }
    for (int i = 0; i < 2; i++)
        y[i] += h / 6.0 * sum[i];
    *t += h;
}

static void once(struct work *w, int64_t i) {
    float in[FRAMES], out[FRAMES];
    double x = (double)(i % 7) - 1.0, y = 0.0;
    switch (w->kind) {
    case PORTAUDIO:
        for (int k = 0; k < FRAMES; k++)
            in[k] = (float)k;
        w->last = ((portaudio_t)w->callback)(in, out, FRAMES, 0, 0, w->data);
        w->total += out[FRAMES - 1];
        break;
    case JACK:
        w->last = ((jack_t)w->callback)(FRAMES, w->data);
        w->total += 1.0;
        break;
    case UNARY:
        w->total += ((unary_t)w->callback)(x);
        w->last = w->reader ? ((reader_t)w->reader)() : 0;
        break;
    case UNARY_STATUS:
        w->last = ((unary_status_t)w->callback)(&y, x);
        w->total += w->last ? 0.0 : y;
        break;
    case ODE: {
        double *state = w->data; /* time, y[0], y[1] */
        step((rhs_t)w->callback, state, state + 1, 1e-3);
        w->total = state[1];
        break;
    }
    }
    if (i == 0)
        w->first = w->last;
}

static void *thread(void *argument) {
    struct work *w = argument;
    void (*arm)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "alloccheck_arm");
    void (*disarm)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "alloccheck_disarm");
    struct ledger *(*ledger)(void) = (struct ledger * (*)(void)) dlsym(RTLD_DEFAULT, "alloccheck_ledger");
    w->events = -1;
    if (arm)
        arm();
    for (int64_t i = 0; i < w->calls; i++)
        once(w, i);
    if (arm) {
        disarm();
        w->events = (int64_t)ledger()->event_count;
        w->windows_complete = ledger()->complete;
    }
    return 0;
}

/* Returns 0, or the error of pthread_create. */
int host_run(struct work *w) {
    pthread_t id;
    int error = pthread_create(&id, 0, thread, w);
    return error ? error : pthread_join(id, 0);
}

/* As many threads at once as `count`, all on the same callback; each has its own work. */
int host_run_many(struct work *all, int count) {
    pthread_t ids[256];
    for (int i = 0; i < count; i++) {
        int error = pthread_create(&ids[i], 0, thread, &all[i]);
        if (error)
            return error;
    }
    for (int i = 0; i < count; i++)
        pthread_join(ids[i], 0);
    return 0;
}

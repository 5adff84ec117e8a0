/* Runs a table of kernel launches on a pool of threads, in one call from Python.
 *
 * An own pool rather than OpenMP: an OpenMP region followed by fork() hangs the child. Here a child simply starts
 * with no workers and makes new ones when it first needs them. Workers spin for a moment before they sleep, since
 * launches follow each other within microseconds.
 *
 * Python handles signals between calls, so a call returns from time to time, between launches or chunks of one, and is
 * made again to go on from there.
 *
 * A phase is over when its iterations are done, not when all workers have seen it: a worker that the machine does not
 * run, because another program has its core, holds up nothing.
 */
#define _GNU_SOURCE
#include "pf_abi.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef struct {
  pf_kernel fn;
  int64_t iterations; /* of the parallel index */
  int64_t grain;      /* iterations a thread should take at least */
  int64_t buffers;    /* how many */
  const int64_t *slots; /* pairs: slot, byte offset */
  const int64_t *args;
  double *seconds; /* or NULL: where to add the launch's time and, behind it, to note when it first began */
} pf_launch;

typedef struct {
  const pf_launch *launches;
  int64_t workers;
  int64_t at[2];    /* launch and iteration to begin with and, when paused, to go on with */
  int64_t error[3]; /* record of the first bad index */
  int64_t slots;    /* how many */
  char *slot[];     /* base address of each buffer of the plan; then the uniforms */
} pf_call;

enum { DONE, TOO_MANY_BUFFERS, PAUSED, BAD_INDEX };
enum { MAX_WORKERS = 256, MAX_BUFFERS = 512, SPINS = 4000, PHASE_SHIFT = 36 };

/* A ticket is a phase's number and, in these lower bits, its first iteration that is not handed out; all ones: none. */
#define INDEX ((UINT64_C(1) << PHASE_SHIFT) - 1)

static struct {
  pthread_mutex_t run;  /* one table at a time */
  pthread_mutex_t lock; /* guards sleeping */
  pthread_cond_t wake;
  pthread_t thread[MAX_WORKERS];
  uint64_t birth[MAX_WORKERS]; /* generation at which each worker was made: it must not miss the next */
  int started;
  _Atomic uint64_t generation; /* bumped for each parallel phase */
  _Atomic uint64_t ticket;
  _Atomic int64_t limit, chunk; /* iterations of the phase, and how many are handed out at once */
  _Atomic int64_t left;         /* iterations that are not done */
  _Atomic int sleeping;
  const pf_launch *launch;
  char **buf;
  const pf_word *uni;
} pool = {.run = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb"); /* about 15 ns; `yield` does nothing, and SPINS of it are over in 4 us */
#endif
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Take chunks of the phase until there are none, or until `deadline`; 0: never. */
static void work(int64_t worker, double deadline) {
  for (;;) {
    uint64_t ticket = atomic_load(&pool.ticket);
    const int64_t begin = (int64_t)(ticket & INDEX), limit = atomic_load(&pool.limit), chunk = atomic_load(&pool.chunk);
    if (begin >= limit) return;
    /* Fails where the phase has changed since, and with it limit and chunk. Once it succeeds the phase waits for us. */
    if (!atomic_compare_exchange_weak(&pool.ticket, &ticket, ticket + (uint64_t)chunk)) continue;
    const int64_t end = begin + chunk < limit ? begin + chunk : limit;
    pool.launch->fn(pool.buf, pool.launch->args, pool.uni, begin, end, worker);
    atomic_fetch_sub(&pool.left, end - begin);
    if (deadline > 0 && now() > deadline) return;
  }
}

static void *worker_main(void *number) {
  uint64_t seen = pool.birth[(intptr_t)number - 1];
  for (;;) {
    for (int spin = 0; atomic_load(&pool.generation) == seen && spin < SPINS; spin++) relax();
    if (atomic_load(&pool.generation) == seen) {
      pthread_mutex_lock(&pool.lock);
      atomic_fetch_add(&pool.sleeping, 1);
      while (atomic_load(&pool.generation) == seen) pthread_cond_wait(&pool.wake, &pool.lock);
      atomic_fetch_sub(&pool.sleeping, 1);
      pthread_mutex_unlock(&pool.lock);
    }
    seen = atomic_load(&pool.generation);
    work((int64_t)(intptr_t)number, 0);
  }
  return NULL;
}

static void before_fork(void) { pthread_mutex_lock(&pool.run); }
static void after_fork_parent(void) { pthread_mutex_unlock(&pool.run); }

static void after_fork_child(void) {
  /* Threads do not survive fork: forget them. */
  pool.started = 0;
  atomic_store(&pool.sleeping, 0);
  pthread_mutex_init(&pool.lock, NULL);
  pthread_cond_init(&pool.wake, NULL);
  pthread_mutex_unlock(&pool.run);
}

__attribute__((constructor)) static void watch_forks(void) {
  pthread_atfork(before_fork, after_fork_parent, after_fork_child);
#if defined(__AMX_TILE__) && defined(SYS_arch_prctl)
  /* The kernel gives a process AMX tile registers (state component 18) only on request. */
  syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18);
#endif
}

static void start(int workers) {
  while (pool.started < workers - 1) {
    pool.birth[pool.started] = atomic_load(&pool.generation);
    if (pthread_create(&pool.thread[pool.started], NULL, worker_main, (void *)(intptr_t)(pool.started + 1))) return;
    pthread_detach(pool.thread[pool.started]);
    pool.started++;
  }
}

/* Run a phase from iteration `first` on; gives the iteration to go on with, which is the last one's next if it is done. */
static int64_t parallel(const pf_launch *l, char **buf, const pf_word *uni, int workers, int64_t first, double deadline) {
  const int64_t grain = l->grain > 0 ? l->grain : 1, spread = l->iterations / (4 * (int64_t)workers);
  const int64_t chunk = spread > grain ? spread : grain;
  if (workers <= 1 || l->iterations <= grain) {
    const int64_t step = deadline > 0 ? chunk : l->iterations;
    while (first < l->iterations) {
      const int64_t end = first + step < l->iterations ? first + step : l->iterations;
      l->fn(buf, l->args, uni, first, end, 0);
      first = end;
      if (deadline > 0 && first < l->iterations && now() > deadline) break;
    }
    return first;
  }
  if (pool.started < workers - 1) start(workers);
  atomic_store(&pool.limit, l->iterations);
  atomic_store(&pool.chunk, chunk);
  atomic_store(&pool.left, l->iterations - first);
  pool.launch = l;
  pool.buf = buf;
  pool.uni = uni;
  const uint64_t phase = (atomic_load(&pool.generation) + 1) << PHASE_SHIFT;
  atomic_store(&pool.ticket, phase | (uint64_t)first);
  atomic_fetch_add(&pool.generation, 1);
  if (atomic_load(&pool.sleeping)) {
    pthread_mutex_lock(&pool.lock);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.lock);
  }
  work(0, deadline);
  /* no more chunks, before limit and chunk change; what was handed out ends */
  const int64_t next = (int64_t)(atomic_exchange(&pool.ticket, phase | INDEX) & INDEX);
  const int64_t reached = next < l->iterations ? next : l->iterations;
  for (int spin = 0; atomic_load(&pool.left) > l->iterations - reached; spin++) {
    if (spin < SPINS) relax();
    else sched_yield(); /* a worker that has begun may need this core */
  }
  return reached;
}

/* Run the first `count` launches in order. pause: seconds after which to return, 0: never. */
int pf_run(pf_call *call, int64_t count, double pause) {
  char *buf[MAX_BUFFERS + 1];
  int status = DONE;
  int64_t *const at = call->at, *const error = call->error;
  const pf_word *uni = (const pf_word *)(call->slot + call->slots);
  const int workers = call->workers < MAX_WORKERS ? (int)call->workers : MAX_WORKERS;
  pthread_mutex_lock(&pool.run);
  buf[0] = (char *)error; /* kernels find it at buf[-1] */
  const double deadline = pause > 0 ? now() + pause : 0;
  while (at[0] < count) {
    const pf_launch *l = call->launches + at[0];
    if (l->buffers > MAX_BUFFERS) {
      status = TOO_MANY_BUFFERS;
      break;
    }
    for (int64_t b = 0; b < l->buffers; b++) buf[b + 1] = call->slot[l->slots[2 * b]] + l->slots[2 * b + 1];
    const double before = l->seconds ? now() : 0;
    at[1] = parallel(l, buf + 1, uni, workers, at[1], deadline);
    if (l->seconds) {
      l->seconds[0] += now() - before;
      if (l->seconds[1] == 0) l->seconds[1] = before;
    }
    if (*error) { /* what comes later may overwrite its inputs */
      status = BAD_INDEX;
      break;
    }
    if (at[1] >= l->iterations) {
      at[0]++;
      at[1] = 0;
    }
    if (deadline > 0 && at[0] < count && now() > deadline) {
      status = PAUSED;
      break;
    }
  }
  pthread_mutex_unlock(&pool.run);
  return status;
}

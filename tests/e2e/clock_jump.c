/* A library to preload: the wall clock of the processes that have it is off, by what a file says.

   The file that CLOCK_JUMP_FILE names holds one number of 64 bits: by how many nanoseconds. It is
   shared memory, so a write to it is a jump for all of them at once. As in the kernel, a wait until
   a time of the wall clock that is under way when the clock jumps takes longer or ends at once. The
   monotonic clock, and waits by it, are left alone.

   Needs glibc 2.34 or newer: a condition variable says there which clock it was made for, and can
   be waited for by another one. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

#define SECOND_NS 1000000000LL
/* A wait looks this often whether the clock has jumped. */
#define LOOK_NS 20000000LL
/* Of a condition variable's flags: it goes by the monotonic clock. */
#define MONOTONIC_FLAG 2

static const int64_t not_at_all = 0;
static volatile const int64_t *off_by = &not_at_all;

__attribute__((constructor)) static void find_the_file(void) {
    const char *path = getenv("CLOCK_JUMP_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *memory = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) abort(); /* a test must not pass without its jump */
    close(file);
    off_by = memory;
}

static int64_t as_ns(const struct timespec *time) {
    return time->tv_sec * SECOND_NS + time->tv_nsec;
}

static struct timespec as_timespec(int64_t ns) {
    return (struct timespec){.tv_sec = ns / SECOND_NS, .tv_nsec = ns % SECOND_NS};
}

static int64_t monotonic_ns(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return as_ns(&now);
}

static int64_t wall_ns(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    return as_ns(&now) + *off_by;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)
        return syscall(SYS_clock_gettime, clock, time);
    *time = as_timespec(wall_ns());
    return 0;
}

int gettimeofday(struct timeval *time, void *zone) {
    int64_t ns = wall_ns();
    (void)zone;
    time->tv_sec = ns / SECOND_NS;
    time->tv_usec = ns % SECOND_NS / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    time_t now = wall_ns() / SECOND_NS;
    if (seconds) *seconds = now;
    return now;
}

static int wait_until(pthread_cond_t *condition, pthread_mutex_t *mutex,
                      const struct timespec *until) {
    for (;;) {
        int64_t left = as_ns(until) - wall_ns();
        int64_t step = left < 0 ? 0 : left < LOOK_NS ? left : LOOK_NS;
        struct timespec look = as_timespec(monotonic_ns() + step);
        int result = pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, &look);
        if (result != ETIMEDOUT || as_ns(until) <= wall_ns()) return result;
    }
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                           const struct timespec *until) {
    if (condition->__data.__wrefs & MONOTONIC_FLAG)
        return pthread_cond_clockwait(condition, mutex, CLOCK_MONOTONIC, until);
    return wait_until(condition, mutex, until);
}

int cnd_timedwait(cnd_t *condition, mtx_t *mutex, const struct timespec *until) {
    int result = wait_until((pthread_cond_t *)condition, (pthread_mutex_t *)mutex, until);
    if (result == ETIMEDOUT) return thrd_timedout;
    return result ? thrd_error : thrd_success;
}

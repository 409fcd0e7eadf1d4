/* Clocks that the judge can move, for one process (LD_PRELOAD).
 *
 * JUDGE_MONOTONIC_BEHIND names a file with nanoseconds: the host was suspended for that long. On Linux CLOCK_MONOTONIC
 * does not count the time a host is suspended, and CLOCK_BOOTTIME does. SIGSTOP stops a process and neither clock. So
 * the judge stops a worker, writes for how long, and wakes it: its monotonic clocks have not moved, all others have.
 *
 * JUDGE_REALTIME_AHEAD is a number of seconds: a server of a later hour, so that a backup is an old one. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long long behind_nanoseconds(void) {
    char text[32] = {0};
    const char *path = getenv("JUDGE_MONOTONIC_BEHIND");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    return length > 0 ? atoll(text) : 0;
}

static long long ahead_seconds(void) {
    static long long ahead = -1;
    if (ahead < 0) {
        const char *text = getenv("JUDGE_REALTIME_AHEAD");
        ahead = text ? atoll(text) : 0;
    }
    return ahead;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result != 0) return result;
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_MONOTONIC_COARSE) {
        long long total = now->tv_sec * 1000000000LL + now->tv_nsec - behind_nanoseconds();
        now->tv_sec = total / 1000000000LL;
        now->tv_nsec = total % 1000000000LL;
    } else if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        now->tv_sec += ahead_seconds();
    }
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0) return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result) {
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (result) *result = precise.tv_sec;
    return precise.tv_sec;
}

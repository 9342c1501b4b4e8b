/* Loaded before the C library in one process, for faults that no namespace can cause in a single process:
 *
 *   LAB_CLOCK=1    the wall clock jumps by an hour at every reading, forth and back
 *   LAB_BUFFERS=1  a socket whose receive buffer is set gets the smallest possible buffers in both directions
 *   LAB_HOST=name  the host name, of any bytes and length; sethostname(2) allows 64 bytes, hostname(1) fewer characters
 *   LAB_SILENT=x   removing a file with x in its path hangs, as when its server never answers
 *
 * At the end of the process it reports on stderr what it has done, so that a test cannot pass because the library
 * was not loaded. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static unsigned looks, buffers;
static int size;

/* An hour ahead at every second reading, an hour behind at the others. */
static long jump(void) { return getenv("LAB_CLOCK") ? (looks++ % 2 ? -3600 : 3600) : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*next)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = next(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += jump();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int (*next)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int result = next(now, zone);
    now->tv_sec += jump();
    return result;
}

time_t time(time_t *now) {
    struct timeval whole;
    gettimeofday(&whole, NULL);
    if (now) *now = whole.tv_sec;
    return whole.tv_sec;
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t length) {
    int (*next)(int, int, int, const void *, socklen_t) = dlsym(RTLD_NEXT, "setsockopt");
    if (!getenv("LAB_BUFFERS") || level != SOL_SOCKET || name != SO_RCVBUF)
        return next(fd, level, name, value, length);
    /* The kernel raises this to its own minimum. */
    int least = 1;
    socklen_t of = sizeof size;
    buffers++;
    int result = next(fd, level, SO_SNDBUF, &least, sizeof least)
        | next(fd, level, SO_RCVBUF, &least, sizeof least);
    getsockopt(fd, level, SO_RCVBUF, &size, &of);
    return result;
}

int gethostname(char *name, size_t length) {
    int (*next)(char *, size_t) = dlsym(RTLD_NEXT, "gethostname");
    const char *host = getenv("LAB_HOST");
    if (!host) return next(name, length);
    strncpy(name, host, length);
    return 0;
}

int unlink(const char *path) {
    int (*next)(const char *) = dlsym(RTLD_NEXT, "unlink");
    const char *silent = getenv("LAB_SILENT");
    while (silent && strstr(path, silent)) pause();
    return next(path);
}

__attribute__((destructor)) static void report(void) {
    if (getenv("LAB_CLOCK")) fprintf(stderr, "preload: %u looks at the wall clock\n", looks);
    if (getenv("LAB_BUFFERS")) fprintf(stderr, "preload: %u receive buffers of %d bytes\n", buffers, size);
}

/* SPDX-License-Identifier: MIT OR Apache-2.0
 * What the test programs share: requests in a line, and claims that end the program when they don't hold. */
#define _GNU_SOURCE
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HOLDS(claim)                                                                              \
    do {                                                                                          \
        if (!(claim)) {                                                                           \
            fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #claim, errno,      \
                    strerror(errno));                                                             \
            fflush(NULL);                                                                         \
            _exit(1);                                                                             \
        }                                                                                         \
    } while (0)

/* A request that tells nobody. */
static inline struct aiocb request(int fd, void *buffer, size_t length, off_t offset)
{
    struct aiocb block;

    memset(&block, 0, sizeof block);
    block.aio_fildes = fd;
    block.aio_buf = buffer;
    block.aio_nbytes = length;
    block.aio_offset = offset;
    block.aio_sigevent.sigev_notify = SIGEV_NONE;
    return block;
}

/* Waits at most this long; gives whether the request is complete. */
static inline int done_within(const struct aiocb *block, double seconds)
{
    const struct aiocb *list[] = {block};
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};

    while (aio_error(block) == EINPROGRESS)
        if (aio_suspend(list, 1, &time) != 0 && errno == EAGAIN)
            return aio_error(block) != EINPROGRESS;
    return 1;
}

/* Seconds that anything may take that is bound to happen. */
static inline double patience(void)
{
    const char *seconds = getenv("TRY_PATIENCE");

    return seconds ? atof(seconds) : 20;
}

/* The result of a request that completes in good time. */
static inline ssize_t result_of(struct aiocb *block)
{
    HOLDS(done_within(block, patience()));
    int error = aio_error(block);
    ssize_t result = aio_return(block);

    errno = error;
    return result;
}

static inline double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static inline void pause_ms(long milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};

    nanosleep(&time, NULL);
}

static inline void stream_pair(int pair[2])
{
    HOLDS(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
}

/* An empty file that goes away by itself. */
static inline int temporary(const char *directory)
{
    char name[256];

    snprintf(name, sizeof name, "%s/tautaio-XXXXXX", directory);
    int fd = mkstemp(name);
    HOLDS(fd >= 0);
    unlink(name);
    return fd;
}

/* Starts the library with a request of no interest. */
static inline void start_library(void)
{
    int pair[2];
    char byte;

    stream_pair(pair);
    struct aiocb read_one = request(pair[0], &byte, 1, 0);
    HOLDS(aio_read(&read_one) == 0 && write(pair[1], "x", 1) == 1);
    HOLDS(result_of(&read_one) == 1);
    close(pair[0]);
    close(pair[1]);
}

/* Joins a thread within seconds; gives its result, or NULL when it does not end. */
static inline void *joined(pthread_t thread)
{
    struct timespec until;
    void *result = NULL;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    return pthread_timedjoin_np(thread, &result, &until) == 0 ? result : NULL;
}

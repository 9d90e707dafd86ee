/* SPDX-License-Identifier: MIT OR Apache-2.0
 * A signal handler that waits for requests has interrupted malloc, whose lock its thread has: what carries the requests
 * out must not wait for that lock. The program has its own malloc, with one lock for all threads. */
#include "try.h"

#include <sys/mman.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static volatile int is_locked;
static volatile pthread_t owner;
/* How often another thread has come upon the lock. */
static volatile int waited;

static void pass(void)
{
    if (is_locked && !pthread_equal(pthread_self(), owner))
        waited++;
    while (is_locked && !pthread_equal(pthread_self(), owner))
        pause_ms(1);
}

/* The thread that starts the library, held in its largest allocation until another one has forked. */
static volatile int starts, starts_amid_fork, has_forked;
static pthread_t starter;

void *malloc(size_t bytes)
{
    pass();
    if (starts && bytes >= 1 << 20 && pthread_equal(pthread_self(), starter)) {
        starts_amid_fork = 1;
        while (!has_forked)
            pause_ms(1);
    }
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    pass();
    return __libc_calloc(count, bytes);
}

void *realloc(void *block, size_t bytes)
{
    pass();
    return __libc_realloc(block, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    pass();
    return __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    *block = memalign(alignment, bytes);
    return *block ? 0 : ENOMEM;
}

void free(void *block)
{
    pass();
    __libc_free(block);
}

static void handled(int number) { (void)number; }

/* Runs with the lock, as a handler does that has interrupted malloc. */
static void locked(void (*work)(void))
{
    struct sigaction action = {.sa_handler = handled};

    start_library();
    HOLDS(sigaction(SIGUSR1, &action, NULL) == 0);
    owner = pthread_self();
    is_locked = 1;
    work();
    HOLDS(waited == 0);
    is_locked = 0;
}

enum { MANY = 2000 };

static struct aiocb blocks[MANY];
static char bytes[MANY];

/* All that makes the library's tables grow. */
static void with_many(int fds[2], int own)
{
    for (int number = 0; number < MANY; number++) {
        blocks[number] = request(fds[0], &bytes[number], 1, number);
        HOLDS(aio_read(&blocks[number]) == 0);
    }
    if (own)
        for (int number = 0; number < MANY / 2; number++)
            HOLDS(write(fds[1], "x", 1) == 1);
    for (int number = 0; number < (own ? MANY / 2 : MANY); number++)
        HOLDS(done_within(&blocks[number], patience()) && aio_error(&blocks[number]) == 0);
    if (own)
        HOLDS(aio_cancel(fds[0], NULL) == AIO_CANCELED);
    HOLDS(done_within(&blocks[MANY - 1], patience()));
}

static void sockets(void)
{
    int pair[2];

    stream_pair(pair);
    with_many(pair, 1);
    HOLDS(close(pair[0]) == 0 && close(pair[1]) == 0);
}

static void pipes(void)
{
    int ends[2];

    HOLDS(pipe(ends) == 0);
    with_many(ends, 1);
    HOLDS(close(ends[0]) == 0 && close(ends[1]) == 0);
}

/* With epoll there is one thread for them, and more can't begin. */
static void files(void)
{
    int file = memfd_create("file", 0);

    HOLDS(file >= 0 && ftruncate(file, MANY) == 0);
    int fds[2] = {file, file};
    with_many(fds, 0);
    waited = 0;
}

static void lists(void)
{
    int pair[2];
    struct aiocb *list[64];

    stream_pair(pair);
    for (int turn = 0; turn < 20; turn++) {
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};

        for (int number = 0; number < 64; number++) {
            blocks[number] = request(pair[number % 2], &bytes[number], 1, 0);
            blocks[number].aio_lio_opcode = number < 32 ? LIO_WRITE : LIO_READ;
            list[number] = &blocks[number];
        }
        HOLDS(lio_listio(LIO_NOWAIT, list, 64, &event) == 0);
        for (int number = 0; number < 64; number++)
            HOLDS(done_within(&blocks[number], patience()));
    }
}

static volatile int called;

static void calls(union sigval value)
{
    (void)value;
    called++;
}

/* Its thread can't begin, but nobody else waits for it. */
static void functions(void)
{
    int pair[2];
    char byte;

    stream_pair(pair);
    for (int turn = 0; turn < 20; turn++) {
        struct aiocb read_block = request(pair[0], &byte, 1, 0);
        read_block.aio_sigevent = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = calls};
        HOLDS(aio_read(&read_block) == 0 && write(pair[1], "x", 1) == 1);
        HOLDS(done_within(&read_block, patience()));
    }
    sockets();
    waited = 0;
}

static void functions_are_called_later(void)
{
    locked(functions);
    for (double begin = now(); called < 20 && now() - begin < patience();)
        pause_ms(1);
    HOLDS(called == 20);
}

/* A fork has the lock of malloc among others, and takes it after the library's own handler has run. */
static volatile int forking;

static void is_forking(void)
{
    forking = 1;
    pass();
    for (double begin = now(); starts && !starts_amid_fork && now() - begin < 0.3;)
        pause_ms(1);
}

static void mind_forks(void) { pthread_atfork(is_forking, NULL, NULL); }

/* Before any library's, so that it runs after theirs. */
__attribute__((section(".preinit_array"), used)) static void (*const before_all)(void) = mind_forks;

static void *forks(void *nothing)
{
    pid_t child = fork();
    int status;

    if (child == 0)
        _exit(0);
    HOLDS(waitpid(child, &status, 0) == child);
    return nothing;
}

static pthread_t forker;

/* That fork waits for the handler, and the handler's requests do not wait for it again and again. */
static void beside_a_fork(void)
{
    char byte;

    HOLDS(pthread_create(&forker, NULL, forks, NULL) == 0);
    while (!forking)
        pause_ms(1);
    double begin = now();
    for (int turn = 0; turn < 20; turn++) {
        int pair[2];

        stream_pair(pair);
        struct aiocb read_block = request(pair[0], &byte, 1, 0);
        HOLDS(aio_read(&read_block) == 0 && write(pair[1], "x", 1) == 1);
        HOLDS(done_within(&read_block, patience()));
        HOLDS(close(pair[0]) == 0 && close(pair[1]) == 0);
    }
    HOLDS(now() - begin < patience() / 2);
    waited = 0;
}

static void nobody_waits_for_a_fork_for_long(void)
{
    locked(beside_a_fork);
    joined(forker);
}

static void *start_amid_fork(void *nothing)
{
    starter = pthread_self();
    starts = 1;
    while (!forking)
        sched_yield();
    start_library();
    return nothing;
}

/* One waits for the other: the child has no half of a start that would never end. */
static void a_first_start_is_not_amid_a_fork(void)
{
    pthread_t thread;
    int status;

    HOLDS(pthread_create(&thread, NULL, start_amid_fork, NULL) == 0);
    while (!starts)
        sched_yield();
    double begin = now();
    pid_t child = fork();
    if (child == 0) {
        starts = 0;
        start_library();
        _exit(0);
    }
    /* What a fork holds up for a second goes on. */
    HOLDS(!starts_amid_fork || now() - begin > 0.9);
    has_forked = 1;
    for (begin = now(); waitpid(child, &status, WNOHANG) == 0; pause_ms(1))
        if (now() - begin > patience()) {
            kill(child, SIGKILL);
            HOLDS(!"the child starts the library");
        }
    HOLDS(status == 0);
    HOLDS(pthread_join(thread, NULL) == 0);
}

static void sockets_complete(void) { locked(sockets); }
static void pipes_complete(void) { locked(pipes); }
static void lists_complete(void) { locked(lists); }

static void files_complete(void) { locked(files); }

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {
#define CASE(name) {#name, name}
    CASE(sockets_complete),
    CASE(pipes_complete),
    CASE(files_complete),
    CASE(lists_complete),
    CASE(functions_are_called_later),
    CASE(nobody_waits_for_a_fork_for_long),
    CASE(a_first_start_is_not_amid_a_fork),
};

int main(int count, char **arguments)
{
    for (size_t index = 0; count == 2 && index < sizeof CASES / sizeof *CASES; index++)
        if (strcmp(arguments[1], CASES[index].name) == 0) {
            CASES[index].run();
            fflush(NULL);
            _exit(0);
        }
    fprintf(stderr, "one of the cases' names is wanted\n");
    return 2;
}

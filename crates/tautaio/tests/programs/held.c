/* SPDX-License-Identifier: MIT OR Apache-2.0
 * What is canceled or closed while a thread of the epoll engine is in the system call, and forks between two
 * of them. The program has its own read, write and fcntl, which hold that thread up, and a kernel that can't be
 * kept from blocking. */
#include "try.h"

#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/uio.h>

static pthread_t main_thread;
static volatile int held, let_go;

/* As kernels that know no RWF_NOWAIT for this file. */
ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    (void)fd, (void)parts, (void)count, (void)offset, (void)flags;
    errno = EOPNOTSUPP;
    return -1;
}

ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    return preadv2(fd, parts, count, offset, flags);
}

static void hold(void)
{
    held = 1;
    while (!let_go)
        pause_ms(1);
    let_go = 0;
}

ssize_t read(int fd, void *bytes, size_t length)
{
    if (!pthread_equal(pthread_self(), main_thread) && length == 3)
        hold();
    return syscall(SYS_read, fd, bytes, length);
}

ssize_t write(int fd, const void *bytes, size_t length)
{
    if (!pthread_equal(pthread_self(), main_thread) && length > 8)
        hold();
    return syscall(SYS_write, fd, bytes, length);
}

/* How many descriptors of its own the library has made. */
static volatile int duplicates;

/* What happens once a submission has looked at its file, and once it has its descriptor and nobody knows that yet. */
static void (*volatile before_a_duplicate)(void), (*volatile amid_a_duplicate)(void);

int fcntl(int fd, int command, ...)
{
    va_list arguments;

    void (*happens)(void) = before_a_duplicate;
    if (command == F_DUPFD_CLOEXEC && happens) {
        before_a_duplicate = NULL;
        happens();
    }
    va_start(arguments, command);
    long result = syscall(SYS_fcntl, fd, command, va_arg(arguments, long));
    duplicates += command == F_DUPFD_CLOEXEC;
    va_end(arguments);
    happens = amid_a_duplicate;
    if (command == F_DUPFD_CLOEXEC && happens) {
        amid_a_duplicate = NULL;
        happens();
    }
    return (int)result;
}

/* Waits until a thread is held; 0 when the engine has done the request without one. */
static int is_held(const struct aiocb *block)
{
    while (!held)
        if (aio_error(block) != EINPROGRESS)
            return 0;
    held = 0;
    return 1;
}

static void pipe_without_waiting(int ends[2])
{
    HOLDS(pipe2(ends, O_NONBLOCK) == 0 && fcntl(ends[1], F_SETPIPE_SZ, 4096) == 4096);
}

/* When the write comes to nothing, as the pipe is full by then, it goes on: that is what the answer said. */
static void a_refused_write_goes_on(void)
{
    static char much[6000], all[16384];
    int ends[2];

    pipe_without_waiting(ends);
    memset(much, 'w', sizeof much);
    struct aiocb write_block = request(ends[1], much, sizeof much, 0);
    HOLDS(aio_write(&write_block) == 0);
    if (!is_held(&write_block))
        _exit(77);
    HOLDS(aio_cancel(ends[1], &write_block) == AIO_NOTCANCELED);
    HOLDS(aio_error(&write_block) == EINPROGRESS);
    while (write(ends[1], "other", 5) == 5 || write(ends[1], "o", 1) == 1)
        ;
    let_go = 1;
    pause_ms(100);
    HOLDS(aio_error(&write_block) == EINPROGRESS);
    let_go = 1;
    /* All of it, although it takes two steps. */
    size_t got = 0, ours = 0;
    for (double begin = now(); ours < sizeof much && now() - begin < patience();) {
        ssize_t count = read(ends[0], all, sizeof all);
        for (ssize_t place = 0; place < count; place++)
            ours += all[place] == 'w';
        got += count > 0 ? (size_t)count : 0;
        let_go = 1;
    }
    HOLDS(got > ours && result_of(&write_block) == sizeof much);
    HOLDS(aio_cancel(ends[1], &write_block) == AIO_ALLDONE);
}

static void *closes(void *fd)
{
    HOLDS(close(*(int *)fd) == 0);
    return NULL;
}

/* A read that comes to nothing, as somebody else took the bytes, does not wait for more. */
static void a_close_ends_what_can_not_be_canceled(void)
{
    char bytes[3];
    int ends[2];
    pthread_t closer;

    pipe_without_waiting(ends);
    HOLDS(write(ends[1], "abc", 3) == 3);
    struct aiocb read_block = request(ends[0], bytes, 3, 0);
    HOLDS(aio_read(&read_block) == 0);
    if (!is_held(&read_block))
        _exit(77);
    HOLDS(pthread_create(&closer, NULL, closes, &ends[0]) == 0);
    pause_ms(50);
    HOLDS(aio_error(&read_block) == EINPROGRESS);
    HOLDS(read(ends[0], bytes, 3) == 3);
    let_go = 1;
    HOLDS(done_within(&read_block, patience()) && aio_error(&read_block) == ECANCELED);
    HOLDS(pthread_join(closer, NULL) == 0);
}

/* How many sockets are open where the library has its own descriptors. A child that starts the library has others. */
static int own_descriptors(void)
{
    struct rlimit limit;
    struct stat stat;
    int count = 0;

    HOLDS(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    int first = (int)(limit.rlim_cur - limit.rlim_cur / 4);
    first = first < 1000 ? first : 1000;
    for (int fd = first; fd < first + 200; fd++)
        count += fstat(fd, &stat) == 0 && S_ISSOCK(stat.st_mode);
    return count;
}

static void is_held_up(void)
{
    held = 1;
    pause_ms(100);
}

static void *reads(void *block)
{
    HOLDS(aio_read(block) == 0);
    return NULL;
}

/* A child has none of them, not even one that a thread of its parent has just got. */
static void a_fork_leaves_no_descriptor(void)
{
    int pair[2];
    char byte;
    pthread_t reader;

    start_library();
    for (int turn = 0; turn < 5; turn++) {
        stream_pair(pair);
        struct aiocb read_block = request(pair[0], &byte, 1, 0);
        held = 0;
        amid_a_duplicate = is_held_up;
        HOLDS(pthread_create(&reader, NULL, reads, &read_block) == 0);
        while (!held)
            sched_yield();
        pid_t child = fork();
        if (child == 0)
            _exit(own_descriptors());
        int status = -1;
        HOLDS(waitpid(child, &status, 0) == child && status == 0);
        HOLDS(pthread_join(reader, NULL) == 0);
        HOLDS(close(pair[0]) == 0 && aio_error(&read_block) == ECANCELED);
        HOLDS(close(pair[1]) == 0);
    }
}

static pid_t forked = -1;

static void forks(void)
{
    double begin = now();

    forked = fork();
    HOLDS(forked >= 0 && now() - begin < 0.9);
}

/* So it is when the submitting thread itself forks, in a signal handler, and goes on in the child. It is not waited for. */
static void a_fork_amid_its_own_duplicate_leaves_none(void)
{
    int pair[2];
    char byte;

    start_library();
    stream_pair(pair);
    struct aiocb read_block = request(pair[0], &byte, 1, 0);
    amid_a_duplicate = forks;
    HOLDS(aio_read(&read_block) == 0);
    if (forked == 0) {
        HOLDS(aio_error(&read_block) == ECANCELED);
        _exit(own_descriptors());
    }
    int status = -1;
    HOLDS(waitpid(forked, &status, 0) == forked && status == 0);
    HOLDS(write(pair[1], "x", 1) == 1 && result_of(&read_block) == 1);
}

static int number, replacement;

static void is_replaced(void)
{
    HOLDS(syscall(SYS_dup3, replacement, number, 0) == number);
}

static void is_closed(void)
{
    HOLDS(syscall(SYS_close, number) == 0);
}

/* Another thread has the number mean another file once the submission has looked at it. The request is about that
 * file, and neither is held longer. */
static void a_file_replaced_amid_the_submission_is_let_go(void)
{
    enum { TURNS = 20 };
    int first[2], second[2], counter, file;
    char bytes[TURNS];
    uint64_t one = 1, count;

    start_library();
    stream_pair(first);
    stream_pair(second);
    counter = eventfd(0, 0);
    file = temporary("/dev/shm");
    HOLDS(counter >= 0);
    number = dup(first[0]);
    for (int turn = 0; turn < TURNS; turn++) {
        const int files[] = {second[0], counter, file};
        for (int index = 0; index < 3; index++) {
            HOLDS(syscall(SYS_dup3, first[0], number, 0) == number);
            replacement = files[index];
            before_a_duplicate = is_replaced;
            struct aiocb block = index == 1 ? request(number, &one, sizeof one, 0) : request(number, "x", 1, turn);
            HOLDS(aio_write(&block) == 0 && result_of(&block) == (index == 1 ? (ssize_t)sizeof one : 1));
            HOLDS(!before_a_duplicate);
        }
    }
    HOLDS(read(second[1], bytes, TURNS) == TURNS && pread(file, bytes, TURNS, 0) == TURNS);
    HOLDS(read(counter, &count, sizeof count) == sizeof count && count == TURNS);
    HOLDS(recv(first[1], bytes, TURNS, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    before_a_duplicate = is_closed;
    HOLDS(syscall(SYS_dup3, first[0], number, 0) == number);
    struct aiocb block = request(number, "x", 1, 0);
    HOLDS(aio_write(&block) == -1 ? errno == EBADF : result_of(&block) == -1 && errno == EBADF);
    HOLDS(close(first[0]) == 0 && close(second[0]) == 0);
    HOLDS(read(first[1], bytes, 1) == 0 && read(second[1], bytes, 1) == 0);
}

/* A socket and a pipe that have one request after the other are held by what the ring has of them. */
static void what_is_at_hand_is_not_duplicated(void)
{
    int pair[2], ends[2];
    char byte, other;

    start_library();
    stream_pair(pair);
    HOLDS(pipe(ends) == 0);
    for (int turn = 0; turn < 200; turn++) {
        struct aiocb read_block = request(pair[0], &byte, 1, 0), write_block = request(pair[0], &byte, 1, 0);
        struct aiocb pipe_block = request(ends[0], &other, 1, 0);
        if (turn == 10)
            duplicates = 0;
        HOLDS(aio_read(&pipe_block) == 0 && aio_read(&read_block) == 0);
        HOLDS(write(pair[1], "x", 1) == 1 && write(ends[1], "y", 1) == 1);
        HOLDS(result_of(&read_block) == 1 && byte == 'x' && result_of(&pipe_block) == 1 && other == 'y');
        HOLDS(aio_write(&write_block) == 0 && read(pair[1], &byte, 1) == 1 && result_of(&write_block) == 1);
    }
    /* A busy machine may hold a turn up for so long that nothing is at hand any more. */
    HOLDS(duplicates < 100);
}

static const struct {
    const char *name;
    void (*run)(void);
} CASES[] = {
#define CASE(name) {#name, name}
    CASE(a_refused_write_goes_on),
    CASE(a_close_ends_what_can_not_be_canceled),
    CASE(a_fork_leaves_no_descriptor),
    CASE(a_fork_amid_its_own_duplicate_leaves_none),
    CASE(a_file_replaced_amid_the_submission_is_let_go),
    CASE(what_is_at_hand_is_not_duplicated),
};

int main(int count, char **arguments)
{
    main_thread = pthread_self();
    for (size_t index = 0; count == 2 && index < sizeof CASES / sizeof *CASES; index++)
        if (strcmp(arguments[1], CASES[index].name) == 0) {
            CASES[index].run();
            fflush(NULL);
            _exit(0);
        }
    fprintf(stderr, "one of the cases' names is wanted\n");
    return 2;
}

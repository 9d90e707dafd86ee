/* SPDX-License-Identifier: MIT OR Apache-2.0
 * XSH, fork, exec, _exit, close. */
#include "rule.h"

int after_exec(char **arguments);

static struct aiocb pending_read(int fd, char *byte)
{
    struct aiocb block = request(fd, byte, 1, 0);

    block.aio_sigevent = signal_event(SIGRTMIN, 0);
    return block;
}

RULE(fork, not_inherited, "The child has none of the parent's requests: they do not end in it, nor is it told of them.")
{
    int pair[2], done[2];
    char byte = '.', word;

    catch_signal(SIGRTMIN);
    pipe_pair(pair);
    pipe_pair(done);
    struct aiocb block = pending_read(pair[0], &byte);
    starts_read(&block);
    let_happen();
    pid_t child = fork();
    if (child == 0) {
        HOLDS(read(done[0], &word, 1) == 1);
        let_happen();
        _exit(byte == '.' && caught.count == 0 ? 0 : 1);
    }
    HOLDS(write(pair[1], "x", 1) == 1 && result_of(&block) == 1);
    COMES(caught.count == 1);
    HOLDS(write(done[1], "d", 1) == 1);
    HOLDS(exit_code_of(child) == 0);
}

RULE(fork, parent, "The parent's requests go on, also when the child is gone.")
{
    int pair[2];
    char byte;

    pipe_pair(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    starts_read(&block);
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    HOLDS(exit_code_of(child) == 0);
    HOLDS(in_progress(&block) && write(pair[1], "x", 1) == 1 && result_of(&block) == 1 && byte == 'x');
}

/* A read in a child of a process that has used AIO. */
static void read_in_child(int pair[2])
{
    pid_t child = fork();

    if (child == 0) {
        char byte;
        struct aiocb block = request(pair[0], &byte, 1, 0);
        starts_read(&block);
        HOLDS(write(pair[1], "c", 1) == 1);
        HOLDS(result_of(&block) == 1 && byte == 'c');
        _exit(0);
    }
    int code = exit_code_of(child);
    HOLDS(code == 0);
}

RULE(fork, child, "The child may use the functions for requests of its own.")
{
    int pair[2];

    start_library();
    pipe_pair(pair);
    read_in_child(pair);
    start_library();
}

RULE(fork, with_pending, "So it may while requests of the parent are pending, on the same descriptor too.")
{
    int pair[2], other[2];
    char byte;

    pipe_pair(pair);
    pipe_pair(other);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    starts_read(&block);
    read_in_child(other);
    HOLDS(in_progress(&block) && write(pair[1], "x", 1) == 1 && result_of(&block) == 1);
}

PROMISE(fork, copies, "In the child the copies of blocks that were in flight read as ECANCELED.")
{
    int pair[2];
    char byte;

    pipe_pair(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    starts_read(&block);
    pid_t child = fork();
    if (child == 0)
        _exit(aio_error(&block) == ECANCELED ? 0 : 1);
    HOLDS(exit_code_of(child) == 0 && in_progress(&block));
}

/* A child that starts a read of the pipe, or none, and then becomes this program anew, which does what the word says.
 * Returns when it is that. */
static pid_t becomes(const char *word, int pair[2], int with_request)
{
    int ready[2];
    char said;

    pipe_pair(ready);
    pid_t child = fork();
    if (child == 0) {
        char byte, numbers[2][16];
        struct aiocb block = pending_read(pair[0], &byte);
        snprintf(numbers[0], sizeof numbers[0], "%d", pair[0]);
        snprintf(numbers[1], sizeof numbers[1], "%d", ready[1]);
        if (with_request) {
            starts_read(&block);
            let_happen();
        }
        execl("/proc/self/exe", "posix", "--after-exec", word, numbers[0], numbers[1], (char *)NULL);
        _exit(99);
    }
    HOLDS(read(ready[0], &said, 1) == 1);
    close(ready[0]);
    close(ready[1]);
    return child;
}

/* How many descriptors are open. */
static int open_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");

    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

int after_exec(char **arguments)
{
    int fd = atoi(arguments[1]), count = open_descriptors();

    HOLDS(write(atoi(arguments[2]), "r", 1) == 1);
    /* A signal that was still sent would end the process: its action is the default one again. */
    if (strcmp(arguments[0], "waits") == 0)
        pause_ms(100);
    if (strcmp(arguments[0], "reads") == 0) {
        char bytes[2];
        struct aiocb block = request(fd, &bytes[0], 1, 0), other = request(file_with("f", O_RDONLY), &bytes[1], 1, 0);
        starts_read(&block);
        starts_read(&other);
        HOLDS(result_of(&other) == 1 && bytes[1] == 'f');
        HOLDS(result_of(&block) == 1 && (bytes[0] == 'x' || bytes[0] == 'y'));
    }
    return strcmp(arguments[0], "counts") == 0 ? count : 0;
}

RULE(exec, no_notification, "Nobody is told in the new program of requests of the old one that end after exec.")
{
    int pair[2];

    pipe_pair(pair);
    pid_t child = becomes("waits", pair, 1);
    HOLDS(write(pair[1], "x", 1) == 1);
    HOLDS(exit_code_of(child) == 0);
}

RULE(exec, not_affected, "The new program may use the functions as if there had never been a request.")
{
    int pair[2];

    pipe_pair(pair);
    pid_t child = becomes("reads", pair, 1);
    /* The old program's request may take one of these. */
    HOLDS(write(pair[1], "xy", 2) == 2);
    HOLDS(exit_code_of(child) == 0);
}

PROMISE(exec, descriptors, "No descriptor of the library's outlives exec.")
{
    int pair[2];

    pipe_pair(pair);
    int expected = exit_code_of(becomes("counts", pair, 0));
    HOLDS(expected > 5 && exit_code_of(becomes("counts", pair, 1)) == expected);
}

static void end_with_pending(void (*end)(int))
{
    int pair[2];

    pipe_pair(pair);
    pid_t child = fork();
    if (child == 0) {
        static char byte;
        static struct aiocb block, other;
        /* Would end the process with another status. */
        block = pending_read(pair[0], &byte);
        starts_read(&block);
        other = request(pair[0], &byte, 1, 0);
        starts_read(&other);
        let_happen();
        end(5);
    }
    HOLDS(exit_code_of(child) == 5);
    close(pair[0]);
}

RULE(exit, outstanding, "_exit ends a process with pending requests, with its status, and nobody is told of them.")
{
    end_with_pending(_exit);
}

RULE(exit, handlers, "So does exit.")
{
    end_with_pending(exit);
}

/* Whether a request whose descriptor was closed was canceled, or completes as if that had not happened. */
static void ends_somehow(struct aiocb *block, int writer)
{
    signal(SIGPIPE, SIG_IGN);
    if (in_progress(block))
        HOLDS(write(writer, "x", 1) == 1);
    ssize_t result = result_of(block);
    HOLDS(result == 1 || (result == -1 && errno == ECANCELED));
}

RULE(close, outstanding, "A request whose descriptor is closed is canceled, or completes as if it were not.")
{
    int pair[2];
    char byte;

    pipe_pair(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    starts_read(&block);
    let_happen();
    HOLDS(close(pair[0]) == 0);
    ends_somehow(&block, pair[1]);
}

RULE(close, dup2, "So it is when dup2 closes it.")
{
    int pair[2], null = open("/dev/null", O_RDWR);
    char byte;

    pipe_pair(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    starts_read(&block);
    let_happen();
    HOLDS(dup2(null, pair[0]) == pair[0]);
    ends_somehow(&block, pair[1]);
}

RULE(close, notification, "Its end is told of as any.")
{
    int pair[2];
    char byte;

    catch_signal(SIGRTMIN);
    pipe_pair(pair);
    struct aiocb block = pending_read(pair[0], &byte);
    starts_read(&block);
    let_happen();
    HOLDS(close(pair[0]) == 0);
    ends_somehow(&block, pair[1]);
    COMES(caught.count == 1);
}

RULE(close, number_used_again, "It has nothing to do with the file that gets the number next.")
{
    int pair[2], next[2];
    char byte;

    pipe_pair(pair);
    struct aiocb block = request(pair[0], &byte, 1, 0);
    starts_read(&block);
    let_happen();
    HOLDS(close(pair[0]) == 0);
    pipe_pair(next);
    HOLDS(next[0] == pair[0] || dup2(next[0], pair[0]) == pair[0]);
    HOLDS(write(next[1], "n", 1) == 1);
    let_happen();
    HOLDS(read(pair[0], &byte, 1) == 1 && byte == 'n');
    ends_somehow(&block, pair[1]);
}

PROMISE(close, cancels, "close and dup2 cancel the descriptor's requests, and the other end sees the end.")
{
    int pairs[2][2], null = open("/dev/null", O_RDWR);
    char byte;

    for (int index = 0; index < 2; index++) {
        stream_pair(pairs[index]);
        struct aiocb block = request(pairs[index][0], &byte, 1, 0);
        starts_read(&block);
        let_happen();
        HOLDS(index ? dup2(null, pairs[index][0]) >= 0 : close(pairs[index][0]) == 0);
        HOLDS(aio_error(&block) == ECANCELED && aio_return(&block) == -1);
        HOLDS(read(pairs[index][1], &byte, 1) == 0);
    }
}

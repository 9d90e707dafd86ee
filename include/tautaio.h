/*
 * What libtautaio has beyond <aio.h>. See tautaio(3).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#ifndef TAUTAIO_H
#define TAUTAIO_H

#include <aio.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Waits for the next request of this process that is complete and whose result was not collected yet, in the order of
 * completion, and collects it as aio_return(3) would. This is aio_waitcomplete(2) of FreeBSD.
 *
 * timeout: how long at most (a zero one only looks), or NULL to wait without end.
 *
 * Returns what aio_return(3) would give for the request, and sets *iocbp to it. For a failed request that is -1 with its
 * error in errno. When no request was collected *iocbp is NULL, and the result -1 with errno
 *   EAGAIN  (the same as EWOULDBLOCK) the time is over, or the library could not be started;
 *   EINTR   a signal handler ran;
 *   EINVAL  the timeout is none: a negative time, or nanoseconds of a second or more.
 *
 * The library does not look at *iocbp's memory, which may be gone when its result was not collected otherwise.
 */
ssize_t aio_waitcomplete(struct aiocb **iocbp, struct timespec *timeout);

/*
 * A descriptor that becomes readable (poll(2), epoll(7)) when requests are complete. Read its eight bytes (eventfd(2); it
 * never blocks) and then call aio_waitcomplete with a zero timeout until that fails with EAGAIN.
 *
 * It is one for the process and the library's: don't close it. After a fork(2) the child has to ask for its own.
 *
 * Returns -1 with errno EAGAIN when the library could not be started, EMFILE or ENFILE when there are no descriptors left.
 */
int tautaio_completion_fd(void);

#ifdef __cplusplus
}
#endif

#endif

/*
 * An echo server with nothing but <aio.h>, in the way of network AIO: each connection has one request in flight, and a
 * realtime signal names the one that is done. No list of connections is ever looked through.
 *
 *   echo              sigwaitinfo(2) takes the signals
 *   echo --suspend    aio_suspend(3) waits on a list of all requests, which is then looked through
 *
 * It listens on a free port of 127.0.0.1, which it prints, and runs until it is killed.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <aio.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST_CONNECTIONS 20000
#define BUFFER 4096

/* The request is now a read and now a write. */
struct connection {
	struct aiocb request;
	int writing;
	char buffer[BUFFER];
};

static int by_signal = 1;
/* By descriptor, for aio_suspend. The signals do without. */
static struct connection *connections[MOST_CONNECTIONS];
static const struct aiocb *requests[MOST_CONNECTIONS];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void end(struct connection *connection)
{
	int fd = connection->request.aio_fildes;

	connections[fd] = NULL;
	requests[fd] = NULL;
	free(connection);
	close(fd);
}

static void start(struct connection *connection, int writing, size_t length)
{
	struct aiocb *request = &connection->request;

	connection->writing = writing;
	request->aio_nbytes = length;
	if ((writing ? aio_write(request) : aio_read(request)) != 0)
		end(connection);
}

/* The request is done: what was read is sent back, and then the next is read. */
static void go_on(struct connection *connection)
{
	ssize_t length = aio_return(&connection->request);

	/* A write on a blocking socket is whole. */
	if (length <= 0)
		end(connection);
	else if (connection->writing)
		start(connection, 0, BUFFER);
	else
		start(connection, 1, (size_t)length);
}

static void begin(int fd)
{
	struct connection *connection = fd < MOST_CONNECTIONS ? calloc(1, sizeof *connection) : NULL;
	struct sigevent *event;

	if (!connection) {
		close(fd);
		return;
	}
	connections[fd] = connection;
	requests[fd] = &connection->request;
	connection->request.aio_fildes = fd;
	connection->request.aio_buf = connection->buffer;
	event = &connection->request.aio_sigevent;
	event->sigev_notify = by_signal ? SIGEV_SIGNAL : SIGEV_NONE;
	event->sigev_signo = SIGRTMIN + 1;
	event->sigev_value.sival_ptr = connection;
	start(connection, 0, BUFFER);
}

static void accept_all(int listener)
{
	int fd;

	while ((fd = accept(listener, NULL, NULL)) >= 0)
		begin(fd);
}

static void serve_by_signal(int listener, const sigset_t *signals)
{
	/* Connections are announced by a signal too, or by SIGIO when there are too many to queue. */
	if (fcntl(listener, F_SETOWN, getpid()) != 0 || fcntl(listener, F_SETSIG, SIGRTMIN + 2) != 0 ||
	    fcntl(listener, F_SETFL, O_NONBLOCK | O_ASYNC) != 0)
		die("fcntl");
	accept_all(listener);
	for (;;) {
		siginfo_t info;
		int signal = sigwaitinfo(signals, &info);

		if (signal == SIGRTMIN + 1 && info.si_code == SI_ASYNCIO)
			go_on(info.si_value.sival_ptr);
		else if (signal == SIGRTMIN + 2 || signal == SIGIO)
			accept_all(listener);
		else if (signal < 0 && errno != EINTR)
			die("sigwaitinfo");
	}
}

static void serve_by_suspend(int listener)
{
	/* New connections have to wait that long, as aio_suspend waits for requests alone. */
	const struct timespec timeout = { .tv_nsec = 10 * 1000 * 1000 };

	if (fcntl(listener, F_SETFL, O_NONBLOCK) != 0)
		die("fcntl");
	for (;;) {
		int any = 0;

		accept_all(listener);
		for (int fd = 0; fd < MOST_CONNECTIONS; fd++) {
			if (connections[fd] && aio_error(&connections[fd]->request) != EINPROGRESS)
				go_on(connections[fd]);
			any |= connections[fd] != NULL;
		}
		/* A list without requests would not be waited for. */
		if (!any)
			nanosleep(&timeout, NULL);
		else if (aio_suspend(requests, MOST_CONNECTIONS, &timeout) != 0 && errno != EAGAIN && errno != EINTR)
			die("aio_suspend");
	}
}

int main(int count, char **arguments)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof address;
	struct rlimit limit;
	sigset_t signals;
	int listener;

	if (count > 1 && strcmp(arguments[1], "--suspend") == 0) {
		by_signal = 0;
	} else if (count > 1) {
		fprintf(stderr, "usage: %s [--suspend]\n", arguments[0]);
		return 2;
	}
	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	/* In all threads, so that the signals wait for sigwaitinfo. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGRTMIN + 1);
	sigaddset(&signals, SIGRTMIN + 2);
	sigaddset(&signals, SIGIO);
	sigprocmask(SIG_BLOCK, &signals, NULL);

	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
	    listen(listener, 4096) != 0 || getsockname(listener, (struct sockaddr *)&address, &length) != 0)
		die("listening");
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);

	if (by_signal)
		serve_by_signal(listener, &signals);
	else
		serve_by_suspend(listener);
}

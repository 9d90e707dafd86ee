/*
 * An echo server with the extensions of <tautaio.h>: poll(2) looks at two descriptors however many connections there
 * are, and aio_waitcomplete gives one finished request after the other.
 *
 * It listens on a free port of 127.0.0.1, which it prints, and runs until it is killed.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tautaio.h>

#define BUFFER 4096

/* The request comes first, so that its address is the connection's. It is now a read and now a write. */
struct connection {
	struct aiocb request;
	int writing;
	char buffer[BUFFER];
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void end(struct connection *connection)
{
	close(connection->request.aio_fildes);
	free(connection);
}

static void start(struct connection *connection, int writing, size_t length)
{
	struct aiocb *request = &connection->request;

	connection->writing = writing;
	request->aio_nbytes = length;
	if ((writing ? aio_write(request) : aio_read(request)) != 0)
		end(connection);
}

static void begin(int fd)
{
	struct connection *connection = calloc(1, sizeof *connection);

	if (!connection) {
		close(fd);
		return;
	}
	connection->request.aio_fildes = fd;
	connection->request.aio_buf = connection->buffer;
	connection->request.aio_sigevent.sigev_notify = SIGEV_NONE;
	start(connection, 0, BUFFER);
}

static void collect(int completions)
{
	struct timespec at_once = { 0 };
	struct aiocb *request;
	uint64_t number;

	if (read(completions, &number, sizeof number) < 0 && errno != EAGAIN)
		die("read");
	for (;;) {
		ssize_t length = aio_waitcomplete(&request, &at_once);
		struct connection *connection = (struct connection *)request;

		if (!connection && errno == EAGAIN)
			return;
		if (!connection && errno != EINTR)
			die("aio_waitcomplete");
		if (!connection)
			continue;
		if (length <= 0)
			end(connection);
		else if (connection->writing)
			start(connection, 0, BUFFER);
		else
			start(connection, 1, (size_t)length);
	}
}

int main(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof address;
	struct pollfd polled[2];
	struct rlimit limit;
	int listener, fd;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		setrlimit(RLIMIT_NOFILE, &limit);
	}
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
	    listen(listener, 4096) != 0 || getsockname(listener, (struct sockaddr *)&address, &length) != 0)
		die("listening");
	polled[0] = (struct pollfd){ .fd = listener, .events = POLLIN };
	polled[1] = (struct pollfd){ .fd = tautaio_completion_fd(), .events = POLLIN };
	if (polled[1].fd < 0)
		die("tautaio_completion_fd");
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);

	for (;;) {
		if (poll(polled, 2, -1) < 0 && errno != EINTR)
			die("poll");
		if (polled[1].revents)
			collect(polled[1].fd);
		while (polled[0].revents && (fd = accept(listener, NULL, NULL)) >= 0)
			begin(fd);
	}
}

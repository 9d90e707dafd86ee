// SPDX-License-Identifier: GPL-2.0
/*
 * UDP as a sink. Sending takes the socket's lock and may allocate, so it is done by the route's thread and never in hard irq.
 * The socket is of the caller's network namespace and keeps that alive.
 */

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/net.h>

#include "path.h"

int taut_udp_get(struct taut_sink *sink, const struct taut_path_end *end)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&sink->to;
	struct sockaddr_in *four = (struct sockaddr_in *)&sink->to;

	if (!end->address.port)
		return -EINVAL;
	if (end->address.family == AF_INET) {
		four->sin_family = AF_INET;
		four->sin_port = end->address.port;
		memcpy(&four->sin_addr, end->address.bytes, sizeof(four->sin_addr));
		sink->to_bytes = sizeof(*four);
	} else if (end->address.family == AF_INET6) {
		six->sin6_family = AF_INET6;
		six->sin6_port = end->address.port;
		six->sin6_scope_id = end->address.scope;
		memcpy(&six->sin6_addr, end->address.bytes, sizeof(six->sin6_addr));
		sink->to_bytes = sizeof(*six);
	} else {
		return -EAFNOSUPPORT;
	}
	return sock_create(end->address.family, SOCK_DGRAM, IPPROTO_UDP, &sink->socket);
}

void taut_udp_put(struct taut_sink *sink)
{
	if (sink->socket)
		sock_release(sink->socket);
	sink->socket = NULL;
}

int taut_udp_send(struct taut_sink *sink, s64 value)
{
	__be64 payload = cpu_to_be64(value);
	struct kvec vector = { .iov_base = &payload, .iov_len = sizeof(payload) };
	struct msghdr message = {
		.msg_name = &sink->to,
		.msg_namelen = sink->to_bytes,
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL,
	};
	int sent = kernel_sendmsg(sink->socket, &message, &vector, 1, sizeof(payload));

	return sent == sizeof(payload) ? 0 : -EIO;
}

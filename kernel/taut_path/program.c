// SPDX-License-Identifier: GPL-2.0
/*
 * The condition: a BPF program of type XDP over an event record. This type is there in every kernel with networking, needs no
 * types of the kernel (BTF), and is what the same condition is in a network route. The verifier has proven that it ends and
 * stays within the record; what it may call is bounded by the maps that it may have, which are arrays.
 */

#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <net/xdp.h>

#include "path.h"

/* Headroom, record, and what XDP keeps free behind a packet. */
#define BUFFER_BYTES 1024

/* None of ours comes near it; in hard irq nothing else should either. */
#define MOST_INSTRUCTIONS 65536

static bool has_only_arrays(const struct bpf_prog *program)
{
	u32 i;

	for (i = 0; i < program->aux->used_map_cnt; i++) {
		if (program->aux->used_maps[i]->map_type != BPF_MAP_TYPE_ARRAY)
			return false;
	}
	return true;
}

/* The record with its surroundings, as XDP has a packet. */
void taut_program_frame(struct taut_route *route)
{
	xdp_init_buff(&route->frame, BUFFER_BYTES, &route->rxq);
	xdp_prepare_buff(&route->frame, route->buffer, XDP_PACKET_HEADROOM, sizeof(struct taut_path_record), false);
}

int taut_program_get(struct taut_route *route, int fd)
{
	struct bpf_prog *program = bpf_prog_get_type_dev(fd, BPF_PROG_TYPE_XDP, false);

	if (IS_ERR(program))
		return PTR_ERR(program);
	if (program->len > MOST_INSTRUCTIONS) {
		bpf_prog_put(program);
		return -E2BIG;
	}
	BUILD_BUG_ON(BUFFER_BYTES < XDP_PACKET_HEADROOM + sizeof(struct taut_path_record) +
				    SKB_DATA_ALIGN(sizeof(struct skb_shared_info)));
	route->buffer = kzalloc(BUFFER_BYTES, GFP_KERNEL);
	if (!route->buffer || !has_only_arrays(program)) {
		int error = route->buffer ? -EACCES : -ENOMEM;

		kfree(route->buffer);
		bpf_prog_put(program);
		return error;
	}
	/* Something for what a program may ask about the device. */
	route->rxq.dev = init_net.loopback_dev;
	route->program = program;
	taut_program_frame(route);
	return 0;
}

void taut_program_put(struct taut_route *route)
{
	if (route->program)
		bpf_prog_put(route->program);
	kfree(route->buffer);
}

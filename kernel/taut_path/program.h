/* SPDX-License-Identifier: GPL-2.0 */
/* Running the condition: in a header, since it is the larger part of an event's way. */
#ifndef TAUT_PATH_PROGRAM_H
#define TAUT_PATH_PROGRAM_H

#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/version.h>

#include "path.h"

static inline struct taut_path_record *taut_record(struct taut_route *route)
{
	return (struct taut_path_record *)(route->buffer + XDP_PACKET_HEADROOM);
}

static __always_inline u32 taut_program_enter(const struct bpf_prog *program, struct xdp_buff *buff)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 11, 0)
	/* Helpers keep things here; those of whom we have interrupted are not ours. */
	struct bpf_net_context context, *mine, *theirs = current->bpf_net_context;
	u32 verdict;

	current->bpf_net_context = NULL;
	mine = bpf_net_ctx_set(&context);
	verdict = bpf_prog_run(program, buff);
	bpf_net_ctx_clear(mine);
	current->bpf_net_context = theirs;
	return verdict;
#else
	return bpf_prog_run(program, buff);
#endif
}

/*
 * With interrupts off (which is also an RCU read-side critical section) and one event at a time; the record has the outputs
 * afterwards.
 */
static __always_inline u32 taut_program_run(struct taut_route *route, const struct taut_event *event)
{
	struct taut_path_record *record = taut_record(route);
	struct xdp_buff *frame = &route->frame;
	u32 verdict;

	record->now_ns = event->now;
	record->value = event->value;
	verdict = taut_program_enter(route->program, frame);
	/* Helpers can move a packet's ends. */
	if (unlikely(frame->data != record || frame->data_end != record + 1)) {
		taut_program_frame(route);
		return U32_MAX;
	}
	return verdict;
}

#endif

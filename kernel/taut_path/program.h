/* SPDX-License-Identifier: GPL-2.0 */
/* Running the condition: in a header, since it is the larger part of an event's way. */
#ifndef TAUT_PATH_PROGRAM_H
#define TAUT_PATH_PROGRAM_H

#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/timekeeping.h>
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
 * A run that takes longer is one too many. One can be late for another reason (a hypervisor that has taken the processor away), but
 * not so many in a row.
 */
#define TAUT_LONGEST_RUN_NS (100 * NSEC_PER_USEC)
#define TAUT_MOST_LONG_RUNS 8

/*
 * With interrupts off (which is also an RCU read-side critical section) and one event at a time; the record has the outputs
 * afterwards.
 */
static __always_inline u32 taut_program_run(struct taut_route *route, const struct taut_event *event)
{
	struct taut_path_record *record = taut_record(route);
	u64 begin;
	u32 verdict;

	record->now_ns = event->now;
	record->value = event->value;
	/* Not local_clock(): with an unstable TSC that stands still from a tick's time after the last tick, and no tick comes here. */
	begin = ktime_get_mono_fast_ns();
	verdict = taut_program_enter(route->program, &route->frame);
	route->run_ns = ktime_get_mono_fast_ns() - begin;
	if (likely(route->run_ns <= TAUT_LONGEST_RUN_NS)) {
		route->long_runs = 0;
	} else {
		route->run_ns = TAUT_LONGEST_RUN_NS;
		route->long_runs++;
	}
	return verdict;
}

#endif

// SPDX-License-Identifier: GPL-2.0
/* The published experiment's loop, for measuring: input read, condition evaluated, output set, over and over. */

#include <linux/ktime.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>

#include "path.h"
#include "program.h"

#define MOST 1000000
/* Turns with interrupts off in one go. */
#define TURNS 64

static void taut_loop_in_c(struct gpio_desc *input, struct gpio_desc *output, u32 turns)
{
	while (turns--) {
		int value = gpiod_get_value(input);

		if (value == 0)
			gpiod_set_value(output, value);
	}
}

static void taut_loop_of_program(struct taut_route *route, u64 now, u32 turns)
{
	struct taut_sink *sink = &route->sinks[0];

	while (turns-- && route->long_runs < TAUT_MOST_LONG_RUNS) {
		struct taut_event event = { .now = now, .value = gpiod_get_value(route->source) };

		if (taut_program_run(route, &event) == TAUT_PATH_PASSED)
			gpiod_set_value(sink->line, taut_record(route)->outputs[sink->output] != 0);
	}
}

int taut_loop(struct taut_route *route, struct taut_path_loop *loop)
{
	u32 left = loop->count;
	unsigned long flags;
	u64 begin;

	if (loop->reserved || loop->count > MOST || !route->source || route->sink_count != 1 ||
	    route->sinks[0].kind != TAUT_PATH_GPIO || route->place != TAUT_PATH_HARDIRQ)
		return -EINVAL;
	begin = ktime_get_ns();
	while (left) {
		u32 turns = min_t(u32, left, TURNS);

		raw_spin_lock_irqsave(&route->lock, flags);
		if (route->condition == TAUT_PATH_IS_ZERO)
			taut_loop_in_c(route->source, route->sinks[0].line, turns);
		else
			taut_loop_of_program(route, begin, turns);
		raw_spin_unlock_irqrestore(&route->lock, flags);
		if (route->long_runs >= TAUT_MOST_LONG_RUNS)
			return -ETIME;
		left -= turns;
		if (signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	loop->ns = ktime_get_ns() - begin;
	return 0;
}

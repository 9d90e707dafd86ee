// SPDX-License-Identifier: GPL-2.0
/* What becomes of an event. */

#include <linux/interrupt.h>
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/sched.h>

#include "path.h"
#include "program.h"

#define WINDOW_NS (10 * NSEC_PER_MSEC)

void taut_unmask(struct work_struct *work)
{
	struct taut_route *route = container_of(to_delayed_work(work), struct taut_route, unmask);

	enable_irq(route->irq);
}

/* Whether there were too many lately; then the source is masked for a while. With the lock. */
static void watch_rate(struct taut_route *route, u64 now)
{
	if (now - route->window_ns > WINDOW_NS) {
		route->window_ns = now;
		route->in_window = 0;
	}
	if (likely(++route->in_window <= route->most_in_window) || route->stopping)
		return;
	route->in_window = 0;
	route->stats.masked++;
	if (route->has_irq) {
		disable_irq_nosync(route->irq);
		schedule_delayed_work(&route->unmask, msecs_to_jiffies(route->mask_ms));
	} else {
		WRITE_ONCE(route->deaf_until, now + route->mask_ms * NSEC_PER_MSEC);
	}
}

static int set(struct taut_sink *sink, s64 value, bool may_sleep)
{
	switch (sink->kind) {
	case TAUT_PATH_GPIO:
		if (may_sleep)
			gpiod_set_value_cansleep(sink->line, value != 0);
		else
			gpiod_set_value(sink->line, value != 0);
		return 0;
	case TAUT_PATH_LED:
		/* The LED's driver limits it to what the LED has. */
		led_trigger_event(&sink->trigger, value ? (enum led_brightness)INT_MAX : LED_OFF);
		return 0;
	default:
		return taut_udp_send(sink, value);
	}
}

/* Condition, sinks and log; one event at a time. */
static __always_inline void handle(struct taut_route *route, const struct taut_event *event)
{
	const s64 *outputs = NULL;
	u32 verdict, i;

	if (route->condition == TAUT_PATH_PROGRAM) {
		bool is_thread = route->place == TAUT_PATH_THREAD;

		/* From a source they are off already. */
		if (is_thread)
			local_irq_disable();
		verdict = taut_program_run(route, event);
		if (is_thread)
			local_irq_enable();
		outputs = taut_record(route)->outputs;
	} else {
		verdict = event->value == 0 ? TAUT_PATH_PASSED : TAUT_PATH_DROPPED;
	}
	if (verdict == TAUT_PATH_PASSED) {
		bool may_sleep = route->place == TAUT_PATH_THREAD;

		for (i = 0; i < route->sink_count; i++) {
			struct taut_sink *sink = &route->sinks[i];

			if (set(sink, outputs ? outputs[sink->output] : event->value, may_sleep))
				route->stats.failed++;
		}
		/* Before it counts as passed, so that whoever reads the counters first finds all of those in the log. */
		if (unlikely(route->log))
			taut_log_write(route, event);
		route->stats.passed++;
		route->stats.histogram[ilog2((ktime_get_ns() - event->now) | 1)]++;
	} else if (verdict == TAUT_PATH_DROPPED) {
		route->stats.dropped++;
	} else if (verdict == TAUT_PATH_SHORT) {
		route->stats.short_events++;
	} else {
		route->stats.bad++;
	}
}

void taut_event_handle(struct taut_route *route, const struct taut_event *event)
{
	handle(route, event);
}

/* From a source, with interrupts off. */
void taut_event_take(struct taut_route *route, u64 now, s64 value)
{
	struct taut_event event = { .now = now, .value = value };

	raw_spin_lock(&route->lock);
	if (route->place == TAUT_PATH_HARDIRQ)
		handle(route, &event);
	else if (kfifo_put(&route->ring, event))
		wake_up_process(route->thread);
	else
		route->stats.lost++;
	route->stats.events++;
	watch_rate(route, now);
	raw_spin_unlock(&route->lock);
}

// SPDX-License-Identifier: GPL-2.0
/*
 * What becomes of an event.
 *
 * Locks, outermost first: what the source holds while it tells of an event (an input device's event_lock; an interrupt's handler
 * holds none), `lock` of the route, those of the drivers of GPIO lines, of the timer's and the workqueue's core. So under `lock` no
 * core is called that may take a source's lock: LEDs have an irq_work (led.c), readers of the log another one (log.c), and UDP the
 * route's thread (udp.c), which holds nothing. On PREEMPT_RT drivers' locks may sleep, and `lock` is a raw one, so there every
 * route has a thread, and under `lock` an event is only put into the ring.
 */

#include <linux/interrupt.h>
#include <linux/ktime.h>
#include <linux/log2.h>
#include <linux/sched.h>

#include "path.h"
#include "program.h"

#define WINDOW_NS (10 * NSEC_PER_MSEC)
/* So much of it may programs take of a processor with interrupts off. */
#define MOST_BUSY_NS (WINDOW_NS / 2)

/* For what has to wait until nothing is locked: the source works again, or does not any more. */
void taut_event_recover(struct work_struct *work)
{
	struct taut_route *route = container_of(to_delayed_work(work), struct taut_route, recover);

	if (!READ_ONCE(route->stats.stopped)) {
		/* The last edge that came meanwhile follows. */
		WRITE_ONCE(route->stale_until, 0);
		enable_irq(route->irq);
		return;
	}
	pr_warn("taut_path: route %u is stopped: its program took more than %lu ns %d times in a row\n", route->id,
		TAUT_LONGEST_RUN_NS, TAUT_MOST_LONG_RUNS);
	if (route->has_irq)
		disable_irq(route->irq);
}

/* Ends a route whose program takes too long, all but its descriptor. With the lock. */
static void taut_event_stop(struct taut_route *route)
{
	if (route->stats.stopped || route->stopping)
		return;
	WRITE_ONCE(route->stats.stopped, 1);
	route->deaf_until = U64_MAX;
	schedule_delayed_work(&route->recover, 0);
}

/* Whether there was too much to do lately; then the source is masked for a while. With the lock. */
static void taut_event_watch(struct taut_route *route, u64 now)
{
	if (now - route->window_ns > WINDOW_NS) {
		route->window_ns = now;
		route->in_window = 0;
		route->busy_ns = 0;
	}
	route->in_window++;
	if (likely(route->in_window <= route->most_in_window && route->busy_ns <= MOST_BUSY_NS) || route->stopping)
		return;
	route->in_window = 0;
	route->busy_ns = 0;
	route->stats.masked++;
	/* A chip that can sleep is masked with its bus's mutex held, which is not to be had here. */
	if (route->has_irq && !route->is_slow) {
		disable_irq_nosync(route->irq);
		schedule_delayed_work(&route->recover, msecs_to_jiffies(route->mask_ms));
	} else {
		route->deaf_until = now + route->mask_ms * NSEC_PER_MSEC;
	}
}

static int taut_sink_set(struct taut_sink *sink, s64 value, bool is_thread)
{
	switch (sink->kind) {
	case TAUT_PATH_GPIO:
		if (is_thread)
			gpiod_set_value_cansleep(sink->line, value != 0);
		else
			gpiod_set_value(sink->line, value != 0);
		return 0;
	case TAUT_PATH_LED:
		taut_led_set(sink, value != 0, is_thread);
		return 0;
	default:
		return taut_udp_send(sink, value);
	}
}

/* Condition, sinks and log; one event at a time. */
static __always_inline void taut_event_pass(struct taut_route *route, const struct taut_event *event, bool is_thread)
{
	const s64 *outputs = NULL;
	u32 verdict, i;

	if (route->condition == TAUT_PATH_PROGRAM) {
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
		for (i = 0; i < route->sink_count; i++) {
			struct taut_sink *sink = &route->sinks[i];

			if (taut_sink_set(sink, outputs ? outputs[sink->output] : event->value, is_thread))
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

/* By the route's thread, without the lock. */
void taut_event_handle(struct taut_route *route, const struct taut_event *event)
{
	/* What was in the ring when its program turned out to take too long. */
	if (unlikely(READ_ONCE(route->stats.stopped))) {
		raw_spin_lock_irq(&route->lock);
		route->stats.lost++;
		raw_spin_unlock_irq(&route->lock);
		return;
	}
	taut_event_pass(route, event, true);
	if (unlikely(route->long_runs >= TAUT_MOST_LONG_RUNS)) {
		raw_spin_lock_irq(&route->lock);
		taut_event_stop(route);
		raw_spin_unlock_irq(&route->lock);
	}
}

/* From a source: an interrupt's handler, its thread, or an input device with its event lock held. */
void taut_event_take(struct taut_route *route, u64 now, s64 value)
{
	struct taut_event event = { .now = now, .value = value };
	unsigned long flags;

	raw_spin_lock_irqsave(&route->lock, flags);
	if (unlikely(now < route->deaf_until)) {
		route->stats.lost++;
		goto out;
	}
	if (route->place == TAUT_PATH_HARDIRQ) {
		taut_event_pass(route, &event, false);
		route->busy_ns += route->run_ns;
		if (unlikely(route->long_runs >= TAUT_MOST_LONG_RUNS))
			taut_event_stop(route);
	} else if (kfifo_put(&route->ring, event)) {
		wake_up_process(route->thread);
	} else {
		route->stats.lost++;
	}
	route->stats.events++;
	taut_event_watch(route, now);
out:
	raw_spin_unlock_irqrestore(&route->lock, flags);
}

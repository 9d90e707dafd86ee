// SPDX-License-Identifier: GPL-2.0
/* A route put together and taken apart. */

#include <linux/err.h>
#include <linux/slab.h>

#include "path.h"

#define MOST_PER_SECOND 200000
#define MASK_MS 10
#define LONGEST_MASK_MS 60000
/* Windows of storms in a second. */
#define WINDOWS 100

static atomic_t ids = ATOMIC_INIT(0);

static bool taut_is_name(const char *name)
{
	return name[0] && strnlen(name, TAUT_PATH_NAME_BYTES) < TAUT_PATH_NAME_BYTES;
}

static bool taut_route_is_sane(const struct taut_path_route *spec)
{
	u32 edges = spec->source.flags & (TAUT_PATH_RISING | TAUT_PATH_FALLING);
	u32 i;

	if (spec->place > TAUT_PATH_THREAD || spec->condition > TAUT_PATH_IS_ZERO ||
	    spec->log > 1 || spec->sinks > TAUT_PATH_MOST_SINKS || spec->mask_ms > LONGEST_MASK_MS ||
	    (spec->most_per_second && spec->most_per_second < WINDOWS) || !taut_is_name(spec->source.name))
		return false;
	if (spec->source.kind == TAUT_PATH_GPIO ? !edges : spec->source.kind != TAUT_PATH_INPUT)
		return false;
	for (i = 0; i < spec->sinks; i++) {
		const struct taut_path_end *end = &spec->sink[i];

		if (end->output >= TAUT_PATH_OUTPUTS || (end->kind == TAUT_PATH_GPIO && !taut_is_name(end->name)) ||
		    (end->kind != TAUT_PATH_GPIO && end->kind != TAUT_PATH_LED && end->kind != TAUT_PATH_UDP))
			return false;
	}
	return true;
}

static void taut_sinks_put(struct taut_route *route)
{
	u32 i;

	for (i = 0; i < route->sink_count; i++) {
		taut_led_put(&route->sinks[i]);
		taut_udp_put(&route->sinks[i]);
	}
	taut_gpio_put(route);
}

static int taut_sinks_get(struct taut_route *route, struct taut_path_route *spec)
{
	u32 i;
	int error;

	for (i = 0; i < spec->sinks; i++) {
		struct taut_sink *sink = &route->sinks[i];

		sink->kind = spec->sink[i].kind;
		sink->output = spec->sink[i].output;
		route->sink_count = i + 1;
		spec->at_fault = TAUT_PATH_FAULT_SINK + i;
		error = 0;
		if (sink->kind == TAUT_PATH_LED)
			error = taut_led_get(route, sink, i);
		else if (sink->kind == TAUT_PATH_UDP)
			error = taut_udp_get(sink, &spec->sink[i]);
		if (error)
			return error;
	}
	return taut_gpio_get(route, spec);
}

static bool taut_route_can_sleep(const struct taut_route *route)
{
	u32 i;

	/* Where spinlocks sleep, so may all drivers. */
	if (IS_ENABLED(CONFIG_PREEMPT_RT))
		return true;
	for (i = 0; i < route->sink_count; i++) {
		if (route->sinks[i].kind == TAUT_PATH_UDP)
			return true;
	}
	return taut_gpio_can_sleep(route);
}

static int taut_route_place(struct taut_route *route, struct taut_path_route *spec)
{
	bool sleeps = taut_route_can_sleep(route);

	spec->at_fault = TAUT_PATH_FAULT_REQUEST;
	if (spec->place == TAUT_PATH_HARDIRQ && sleeps)
		return -EDEADLK;
	if (spec->place == TAUT_PATH_AUTO)
		spec->place = sleeps ? TAUT_PATH_THREAD : TAUT_PATH_HARDIRQ;
	route->place = spec->place;
	return route->place == TAUT_PATH_THREAD ? taut_thread_start(route) : 0;
}

struct taut_route *taut_route_start(struct taut_path_route *spec)
{
	struct taut_route *route;
	int error;

	spec->at_fault = TAUT_PATH_FAULT_REQUEST;
	if (spec->abi != TAUT_PATH_ABI) {
		spec->abi = TAUT_PATH_ABI;
		return ERR_PTR(-EPROTONOSUPPORT);
	}
	if (!taut_route_is_sane(spec))
		return ERR_PTR(-EINVAL);
	route = kzalloc(sizeof(*route), GFP_KERNEL);
	if (!route)
		return ERR_PTR(-ENOMEM);
	raw_spin_lock_init(&route->lock);
	INIT_DELAYED_WORK(&route->recover, taut_event_recover);
	route->id = atomic_inc_return(&ids);
	route->condition = spec->condition;
	route->edges = spec->source.flags & (TAUT_PATH_RISING | TAUT_PATH_FALLING);
	route->most_in_window = (spec->most_per_second ?: MOST_PER_SECOND) / WINDOWS;
	route->mask_ms = spec->mask_ms ?: MASK_MS;
	spec->id = route->id;

	error = spec->log ? taut_log_get(route) : 0;
	if (error)
		goto no_log;
	spec->at_fault = TAUT_PATH_FAULT_PROGRAM;
	error = route->condition == TAUT_PATH_PROGRAM ? taut_program_get(route, spec->program) : 0;
	if (error)
		goto no_program;
	error = taut_sinks_get(route, spec);
	if (error)
		goto no_sinks;
	error = taut_route_place(route, spec);
	if (error)
		goto no_sinks;
	spec->at_fault = TAUT_PATH_FAULT_SOURCE;
	if (spec->source.kind == TAUT_PATH_GPIO) {
		error = taut_gpio_source_start(route);
	} else {
		memcpy(route->input_name, spec->source.name, sizeof(route->input_name));
		route->input_event = spec->source.number;
		error = taut_input_start(route);
	}
	if (error)
		goto no_source;
	return route;

no_source:
	taut_thread_stop(route);
	cancel_delayed_work_sync(&route->recover);
no_sinks:
	taut_sinks_put(route);
	taut_program_put(route);
no_program:
	taut_log_put(route);
no_log:
	kfree(route);
	return ERR_PTR(error);
}

void taut_route_stop(struct taut_route *route)
{
	/* Nothing is masked or stopped any more, so nothing of it has to be done after the source is gone. */
	raw_spin_lock_irq(&route->lock);
	route->stopping = true;
	raw_spin_unlock_irq(&route->lock);
	cancel_delayed_work_sync(&route->recover);
	taut_gpio_source_stop(route);
	taut_input_stop(route);
	taut_thread_stop(route);
	taut_sinks_put(route);
	taut_program_put(route);
	taut_log_put(route);
	kfree(route);
}

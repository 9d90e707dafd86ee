// SPDX-License-Identifier: GPL-2.0
/* GPIO lines as sources and sinks, looked up by chip label and offset through a device of the route's own. */

#include <linux/interrupt.h>
#include <linux/ktime.h>
#include <linux/platform_device.h>
#include <linux/slab.h>

#include "path.h"

static unsigned long taut_gpio_flags(u32 flags)
{
	unsigned long lookup = flags & TAUT_PATH_ACTIVE_LOW ? GPIO_ACTIVE_LOW : GPIO_ACTIVE_HIGH;

	if (flags & TAUT_PATH_PULL_UP)
		lookup |= GPIO_PULL_UP;
	if (flags & TAUT_PATH_PULL_DOWN)
		lookup |= GPIO_PULL_DOWN;
	if (flags & TAUT_PATH_PULL_OFF)
		lookup |= GPIO_PULL_DISABLE;
	return lookup;
}

static int taut_gpio_get_line(struct taut_route *route, const char *use, u32 index, enum gpiod_flags flags, struct gpio_desc **line)
{
	struct gpio_desc *found = gpiod_get_index(&route->device->dev, use, index, flags);

	if (IS_ERR(found)) {
		/* No chip has that label; it may come later, but nobody waits for it. */
		return PTR_ERR(found) == -EPROBE_DEFER ? -ENODEV : PTR_ERR(found);
	}
	*line = found;
	return 0;
}

/* All lines of the route, the source's last, so that the outputs have a level before it begins. */
int taut_gpio_get(struct taut_route *route, struct taut_path_route *spec)
{
	struct gpiod_lookup_table *table;
	struct gpiod_lookup *entry;
	u32 i;
	int error;

	spec->at_fault = TAUT_PATH_FAULT_REQUEST;
	table = kzalloc(struct_size(table, table, spec->sinks + 2), GFP_KERNEL);
	if (!table)
		return -ENOMEM;
	route->device = platform_device_register_simple("taut_path", route->id, NULL, 0);
	if (IS_ERR(route->device)) {
		error = PTR_ERR(route->device);
		route->device = NULL;
		kfree(table);
		return error;
	}
	entry = table->table;
	for (i = 0; i < spec->sinks; i++) {
		const struct taut_path_end *end = &spec->sink[i];

		if (end->kind == TAUT_PATH_GPIO)
			*entry++ = GPIO_LOOKUP_IDX(end->name, end->number, "sink", i, taut_gpio_flags(end->flags));
	}
	if (spec->source.kind == TAUT_PATH_GPIO)
		*entry++ = GPIO_LOOKUP_IDX(spec->source.name, spec->source.number, "source", 0, taut_gpio_flags(spec->source.flags));
	table->dev_id = dev_name(&route->device->dev);
	gpiod_add_lookup_table(table);
	error = 0;
	for (i = 0; i < spec->sinks && !error; i++) {
		spec->at_fault = TAUT_PATH_FAULT_SINK + i;
		if (spec->sink[i].kind == TAUT_PATH_GPIO)
			error = taut_gpio_get_line(route, "sink", i, GPIOD_OUT_LOW, &route->sinks[i].line);
	}
	if (!error && spec->source.kind == TAUT_PATH_GPIO) {
		spec->at_fault = TAUT_PATH_FAULT_SOURCE;
		error = taut_gpio_get_line(route, "source", 0, GPIOD_IN, &route->source);
	}
	/* Its names are the request's, and it has done its work. */
	gpiod_remove_lookup_table(table);
	kfree(table);
	return error;
}

void taut_gpio_put(struct taut_route *route)
{
	u32 i;

	if (route->source)
		gpiod_put(route->source);
	for (i = 0; i < route->sink_count; i++) {
		if (route->sinks[i].line)
			gpiod_put(route->sinks[i].line);
	}
	if (route->device)
		platform_device_unregister(route->device);
}

bool taut_gpio_can_sleep(const struct taut_route *route)
{
	u32 i;

	for (i = 0; i < route->sink_count; i++) {
		if (route->sinks[i].line && gpiod_cansleep(route->sinks[i].line))
			return true;
	}
	return route->source && gpiod_cansleep(route->source);
}

/*
 * The kernel keeps an edge that comes while a line's interrupt is disabled, also past the end of who disabled it, and gives it
 * to who enables it next. For a route that begins that is an edge from before, which comes within its first second, from the
 * kernel's tasklet for such edges (kernel/irq/resend.c). After a mask of the route's own it is an event (event.c). Chips that
 * can sleep are not masked.
 */
static bool taut_gpio_is_stale(struct taut_route *route)
{
	u64 until = READ_ONCE(route->stale_until);

	if (likely(!until) || in_hardirq() || !in_serving_softirq())
		return false;
	WRITE_ONCE(route->stale_until, 0);
	return ktime_get_ns() < until;
}

/* Where a thread does the rest. */
static irqreturn_t taut_gpio_interrupt(int irq, void *data)
{
	return taut_gpio_is_stale(data) ? IRQ_HANDLED : IRQ_WAKE_THREAD;
}

static irqreturn_t taut_gpio_edge(int irq, void *data)
{
	struct taut_route *route = data;
	u64 now = ktime_get_ns();

	if (taut_gpio_is_stale(route))
		return IRQ_HANDLED;
	/* The level is known where only one edge is wanted. */
	if (route->edges == (TAUT_PATH_RISING | TAUT_PATH_FALLING))
		taut_event_take(route, now, gpiod_get_value(route->source) > 0);
	else
		taut_event_take(route, now, route->edges == TAUT_PATH_RISING);
	return IRQ_HANDLED;
}

/*
 * Of a chip that can sleep, in a thread. The interrupt of such a chip need not come in one: that may be a line of the processor's
 * own, while the level behind it takes a transfer or a mutex (gpio-sim).
 */
static irqreturn_t taut_gpio_slow_edge(int irq, void *data)
{
	struct taut_route *route = data;
	u64 now = ktime_get_ns();
	bool high = gpiod_get_value_cansleep(route->source) > 0;

	taut_event_take(route, now, high);
	return IRQ_HANDLED;
}

int taut_gpio_source_start(struct taut_route *route)
{
	bool rising = route->edges & TAUT_PATH_RISING, falling = route->edges & TAUT_PATH_FALLING;
	unsigned long flags = IRQF_NO_AUTOEN;
	int error, irq = gpiod_to_irq(route->source);

	if (irq < 0)
		return irq;
	route->is_slow = gpiod_cansleep(route->source);
	/*
	 * Where handlers are forced into threads (PREEMPT_RT), the driver's lock may sleep, by which a level is read. Without that, a
	 * handler puts an event into the ring and no more, and needs no thread.
	 */
	if (!route->is_slow && (!IS_ENABLED(CONFIG_PREEMPT_RT) || rising != falling))
		flags |= IRQF_NO_THREAD;
	/* Edges are those of the logical level. */
	if (gpiod_is_active_low(route->source))
		swap(rising, falling);
	flags |= (rising ? IRQF_TRIGGER_RISING : 0) | (falling ? IRQF_TRIGGER_FALLING : 0);
	if (route->is_slow)
		error = request_threaded_irq(irq, NULL, taut_gpio_slow_edge, flags | IRQF_ONESHOT, "taut_path", route);
	else if (!(flags & IRQF_NO_THREAD))
		error = request_threaded_irq(irq, taut_gpio_interrupt, taut_gpio_edge, flags | IRQF_ONESHOT, "taut_path",
					     route);
	else
		error = request_any_context_irq(irq, taut_gpio_edge, flags, "taut_path", route);
	if (error < 0)
		return error;
	route->irq = irq;
	route->has_irq = true;
	route->stale_until = ktime_get_ns() + NSEC_PER_SEC;
	enable_irq(irq);
	return 0;
}

void taut_gpio_source_stop(struct taut_route *route)
{
	if (route->has_irq)
		free_irq(route->irq, route);
}

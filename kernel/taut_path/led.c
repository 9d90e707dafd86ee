// SPDX-License-Identifier: GPL-2.0
/*
 * LEDs as sinks: a trigger for each, which user space gives to the LED in sysfs.
 *
 * What the LED's driver does to light it is its own affair, and may take locks that the source of the event holds: an LED of an
 * input device (drivers/input/input-leds.c) takes the event_lock under which that device hands over its events. So the trigger is
 * never pulled where events are handled, but by an irq_work once the source is done: in the next interrupt, or, on PREEMPT_RT,
 * in a thread, where drivers may sleep on their locks. drivers/tty/vt/keyboard.c has a tasklet for the same reason.
 */

#include "path.h"

static void taut_led_pull(struct irq_work *work)
{
	struct taut_sink *sink = container_of(work, struct taut_sink, pull);

	/* The LED's driver limits it to what the LED has. */
	led_trigger_event(&sink->trigger, READ_ONCE(sink->is_lit) ? (enum led_brightness)INT_MAX : LED_OFF);
}

int taut_led_get(struct taut_route *route, struct taut_sink *sink, u32 index)
{
	int error;

	snprintf(sink->trigger_name, sizeof(sink->trigger_name), "taut-path-%u-%u", route->id, index);
	sink->trigger.name = sink->trigger_name;
	init_irq_work(&sink->pull, taut_led_pull);
	error = led_trigger_register(&sink->trigger);
	if (error)
		sink->trigger.name = NULL;
	return error;
}

/* Of several values that come before the irq_work runs, the last one is set. */
void taut_led_set(struct taut_sink *sink, bool is_lit, bool is_thread)
{
	WRITE_ONCE(sink->is_lit, is_lit);
	/* The route's thread holds nothing. */
	if (is_thread)
		taut_led_pull(&sink->pull);
	else
		irq_work_queue(&sink->pull);
}

/* After the source and the thread, so that nobody queues it any more. */
void taut_led_put(struct taut_sink *sink)
{
	if (!sink->trigger.name)
		return;
	irq_work_sync(&sink->pull);
	led_trigger_unregister(&sink->trigger);
	sink->trigger.name = NULL;
}

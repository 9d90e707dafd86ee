// SPDX-License-Identifier: GPL-2.0
/* LEDs as sinks: a trigger for each, which user space gives to the LED in sysfs. What becomes of the LED is the core's affair. */

#include "path.h"

int taut_led_get(struct taut_route *route, struct taut_sink *sink, u32 index)
{
	int error;

	snprintf(sink->trigger_name, sizeof(sink->trigger_name), "taut-path-%u-%u", route->id, index);
	sink->trigger.name = sink->trigger_name;
	error = led_trigger_register(&sink->trigger);
	if (error)
		sink->trigger.name = NULL;
	return error;
}

void taut_led_put(struct taut_sink *sink)
{
	if (sink->trigger.name)
		led_trigger_unregister(&sink->trigger);
	sink->trigger.name = NULL;
}

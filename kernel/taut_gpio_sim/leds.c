// SPDX-License-Identifier: GPL-2.0
/*
 * A device of the stock driver leds-gpio with two LEDs on the simulated chips: "taut-sim-line" on line 31 of the one with atomic
 * lines, which the driver sets at once, and "taut-sim-slow-line" on line 31 of the other one, which it sets in a work. They are
 * there while that driver is, too.
 */

#include <linux/gpio/machine.h>
#include <linux/leds.h>
#include <linux/platform_device.h>

#include "sim.h"

#define DRIVER "leds-gpio"
#define NUMBER 7411

static struct gpiod_lookup_table sim_leds_lines = {
	.dev_id = DRIVER "." __stringify(NUMBER),
	.table = {
		GPIO_LOOKUP_IDX(SIM_LABEL, SIM_LINES - 1, NULL, 0, GPIO_ACTIVE_HIGH),
		GPIO_LOOKUP_IDX(SIM_SLOW_LABEL, SIM_LINES - 1, NULL, 1, GPIO_ACTIVE_HIGH),
		{}
	},
};

static const struct gpio_led sim_leds[] = {
	{ .name = "taut-sim-line" },
	{ .name = "taut-sim-slow-line" },
};

static const struct gpio_led_platform_data sim_leds_data = {
	.num_leds = ARRAY_SIZE(sim_leds),
	.leds = sim_leds,
};

static struct platform_device *sim_leds_device;

int sim_leds_there(bool there)
{
	struct platform_device *device;

	if (there == !!sim_leds_device)
		return 0;
	if (!there) {
		platform_device_unregister(sim_leds_device);
		gpiod_remove_lookup_table(&sim_leds_lines);
		sim_leds_device = NULL;
		return 0;
	}
	gpiod_add_lookup_table(&sim_leds_lines);
	device = platform_device_register_data(NULL, DRIVER, NUMBER, &sim_leds_data, sizeof(sim_leds_data));
	if (IS_ERR(device)) {
		gpiod_remove_lookup_table(&sim_leds_lines);
		return PTR_ERR(device);
	}
	sim_leds_device = device;
	return 0;
}

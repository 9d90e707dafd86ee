// SPDX-License-Identifier: GPL-2.0
/*
 * Simulated GPIO chips and a LED, for tests of what stands between an input and an output.
 *
 * "taut-gpio-sim" has atomic lines and interrupts; run.c makes edges on it. "taut-gpio-sim-slow" is as an expander behind
 * I2C: its lines may only be used where one may sleep. Both have 32 lines, which begin as inputs at level 0.
 */

#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/module.h>
#include <linux/platform_device.h>

#include "sim.h"

#define NAME "taut_gpio_sim"

struct sim_chip *sim_first;
static struct platform_device *sim_devices[2];

static struct sim_chip *sim_chip_of(struct gpio_chip *gc)
{
	return container_of(gc, struct sim_chip, gc);
}

static int sim_get(struct gpio_chip *gc, unsigned int line)
{
	struct sim_chip *chip = sim_chip_of(gc);

	return test_bit(line, &chip->levels);
}

static void sim_set(struct gpio_chip *gc, unsigned int line, int value)
{
	struct sim_chip *chip = sim_chip_of(gc);

	sim_stamp_output(false);
	assign_bit(line, &chip->levels, value);
}

static int sim_get_direction(struct gpio_chip *gc, unsigned int line)
{
	struct sim_chip *chip = sim_chip_of(gc);

	return test_bit(line, &chip->outputs) ? GPIO_LINE_DIRECTION_OUT : GPIO_LINE_DIRECTION_IN;
}

static int sim_direction_input(struct gpio_chip *gc, unsigned int line)
{
	struct sim_chip *chip = sim_chip_of(gc);

	clear_bit(line, &chip->outputs);
	return 0;
}

static int sim_direction_output(struct gpio_chip *gc, unsigned int line, int value)
{
	struct sim_chip *chip = sim_chip_of(gc);

	assign_bit(line, &chip->levels, value);
	set_bit(line, &chip->outputs);
	return 0;
}

static int sim_irq_set_type(struct irq_data *data, unsigned int type)
{
	struct sim_chip *chip = sim_chip_of(irq_data_get_irq_chip_data(data));

	if (type & ~IRQ_TYPE_EDGE_BOTH)
		return -EINVAL;
	WRITE_ONCE(chip->wants[irqd_to_hwirq(data)], type);
	return 0;
}

static void sim_irq_mask(struct irq_data *data)
{
	struct gpio_chip *gc = irq_data_get_irq_chip_data(data);
	struct sim_chip *chip = sim_chip_of(gc);

	set_bit(irqd_to_hwirq(data), &chip->masked);
	gpiochip_disable_irq(gc, irqd_to_hwirq(data));
}

static void sim_irq_unmask(struct irq_data *data)
{
	struct gpio_chip *gc = irq_data_get_irq_chip_data(data);
	struct sim_chip *chip = sim_chip_of(gc);

	gpiochip_enable_irq(gc, irqd_to_hwirq(data));
	clear_bit(irqd_to_hwirq(data), &chip->masked);
}

static const struct irq_chip sim_irq_chip = {
	.name = NAME,
	.irq_mask = sim_irq_mask,
	.irq_unmask = sim_irq_unmask,
	.irq_set_type = sim_irq_set_type,
	.flags = IRQCHIP_IMMUTABLE,
	GPIOCHIP_IRQ_RESOURCE_HELPERS,
};

void sim_rest(struct sim_chip *chip, unsigned int line, bool high)
{
	assign_bit(line, &chip->levels, high);
}

void sim_toggle(struct sim_chip *chip, unsigned int line)
{
	u8 edge = test_and_change_bit(line, &chip->levels) ? IRQ_TYPE_EDGE_FALLING : IRQ_TYPE_EDGE_RISING;

	if ((READ_ONCE(chip->wants[line]) & edge) && !test_bit(line, &chip->masked))
		generic_handle_domain_irq(chip->gc.irq.domain, line);
}

static void sim_forget(void *unused)
{
	mutex_lock(&sim_lock);
	sim_first = NULL;
	mutex_unlock(&sim_lock);
}

static int sim_probe(struct platform_device *pdev)
{
	struct device *dev = &pdev->dev;
	struct sim_chip *chip = devm_kzalloc(dev, sizeof(*chip), GFP_KERNEL);
	bool slow = pdev->id == 1;
	int error;

	if (!chip)
		return -ENOMEM;
	chip->gc.label = slow ? SIM_SLOW_LABEL : SIM_LABEL;
	chip->gc.parent = dev;
	chip->gc.owner = THIS_MODULE;
	chip->gc.base = -1;
	chip->gc.ngpio = SIM_LINES;
	chip->gc.can_sleep = slow;
	chip->gc.get = sim_get;
	chip->gc.set = sim_set;
	chip->gc.get_direction = sim_get_direction;
	chip->gc.direction_input = sim_direction_input;
	chip->gc.direction_output = sim_direction_output;
	if (!slow) {
		gpio_irq_chip_set_chip(&chip->gc.irq, &sim_irq_chip);
		chip->gc.irq.handler = handle_simple_irq;
		chip->gc.irq.default_type = IRQ_TYPE_NONE;
	}
	error = devm_gpiochip_add_data(dev, &chip->gc, NULL);
	if (error)
		return error;
	if (slow)
		return 0;
	mutex_lock(&sim_lock);
	sim_first = chip;
	mutex_unlock(&sim_lock);
	/* Undone before the chip is taken down. */
	return devm_add_action_or_reset(dev, sim_forget, NULL);
}

static struct platform_driver sim_driver = {
	.probe = sim_probe,
	.driver = { .name = NAME },
};

static int __init sim_init(void)
{
	int i, error;

	error = sim_run_init();
	if (error)
		return error;
	error = platform_driver_register(&sim_driver);
	if (error)
		goto no_driver;
	for (i = 0; i < ARRAY_SIZE(sim_devices); i++) {
		sim_devices[i] = platform_device_register_simple(NAME, i, NULL, 0);
		if (IS_ERR(sim_devices[i])) {
			error = PTR_ERR(sim_devices[i]);
			goto no_device;
		}
	}
	return 0;

no_device:
	while (i--)
		platform_device_unregister(sim_devices[i]);
	platform_driver_unregister(&sim_driver);
no_driver:
	sim_run_exit();
	sim_run_free();
	return error;
}

static void __exit sim_exit(void)
{
	int i;

	/* Before the chips, so that nobody makes edges any more. */
	sim_run_exit();
	for (i = 0; i < ARRAY_SIZE(sim_devices); i++)
		platform_device_unregister(sim_devices[i]);
	platform_driver_unregister(&sim_driver);
	sim_run_free();
}

module_init(sim_init);
module_exit(sim_exit);
MODULE_DESCRIPTION("Simulated GPIO chips that make edges and stamp them, for tests");
MODULE_AUTHOR("Tautline");
MODULE_LICENSE("GPL");

/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TAUT_GPIO_SIM_H
#define TAUT_GPIO_SIM_H

#include <linux/gpio/driver.h>

#define SIM_LINES 32
#define SIM_LABEL "taut-gpio-sim"
#define SIM_SLOW_LABEL "taut-gpio-sim-slow"

/* A chip whose lines are bits in memory. */
struct sim_chip {
	struct gpio_chip gc;
	/* Bit n: level of line n, whether it is an output, whether its interrupt is masked. */
	unsigned long levels;
	unsigned long outputs;
	unsigned long masked;
	/* IRQ_TYPE_EDGE_* that line n's interrupt wants. */
	u8 wants[SIM_LINES];
};

/* chip.c: the chip that makes edges, or NULL while it is gone. */
extern struct sim_chip *sim_first;
/* Turns an input's level over and raises its interrupt if that wants this edge. In hard irq. */
void sim_toggle(struct sim_chip *chip, unsigned int line);
/* Sets an input's level without an edge. */
void sim_rest(struct sim_chip *chip, unsigned int line, bool high);

/* run.c: edges with time stamps, and their debugfs. */
void sim_stamp_output(bool is_led);
int sim_run_init(void);
void sim_run_exit(void);
/* After the chips are gone, whose lines stamp. */
void sim_run_free(void);
/* leds.c: whether the LEDs on lines are there. With sim_lock. */
int sim_leds_there(bool there);

/* Serialises runs against the removal of the chip. */
extern struct mutex sim_lock;

#endif

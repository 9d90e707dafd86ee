/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A route in the kernel. Events come from gpio.c or input.c, go through event.c, by way of thread.c when something on the
 * route can sleep, to the condition (program.c), the sinks (gpio.c, led.c, udp.c) and the log (log.c). route.c puts it together.
 */
#ifndef TAUT_PATH_INTERNAL_H
#define TAUT_PATH_INTERNAL_H

#include <linux/gpio/consumer.h>
#include <linux/gpio/machine.h>
#include <linux/input.h>
#include <linux/irq_work.h>
#include <linux/kfifo.h>
#include <linux/leds.h>
#include <linux/socket.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/bpf.h>
#include <net/xdp.h>

#include "taut_path.h"

struct bpf_prog;
struct file;
struct platform_device;
struct poll_table_struct;
struct task_struct;
struct taut_log;

struct taut_event {
	u64 now;
	s64 value;
};

struct taut_sink {
	u32 kind;
	u32 output;
	struct gpio_desc *line;
	struct led_trigger trigger;
	char trigger_name[32];
	struct irq_work pull;
	bool is_lit;
	struct socket *socket;
	struct sockaddr_storage to;
	int to_bytes;
};

struct taut_route {
	/* Serialises events, and what they change; event.c has its place among others' locks. */
	raw_spinlock_t lock;
	u32 id;
	u32 place; /* TAUT_PATH_HARDIRQ or _THREAD */
	u32 condition;
	bool stopping;

	struct bpf_prog *program;
	u8 *buffer;
	struct xdp_rxq_info rxq;
	/* Around the record in `buffer`. */
	struct xdp_buff frame;
	u64 run_ns; /* of the last run, up to TAUT_LONGEST_RUN_NS */
	u32 long_runs; /* the last ones, in a row */

	struct platform_device *device;
	struct gpio_desc *source;
	u32 edges; /* TAUT_PATH_RISING, TAUT_PATH_FALLING */
	int irq;
	bool has_irq;
	bool is_slow; /* the source's chip can sleep */
	u64 stale_until; /* an edge that was kept is from before the route; 0: it is the route's */

	struct input_handler handler;
	char input_name[TAUT_PATH_NAME_BYTES];
	u32 input_event; /* type << 16 | code */
	atomic_t input_devices;
	struct input_device_id input_ids[2];

	DECLARE_KFIFO_PTR(ring, struct taut_event);
	struct task_struct *thread;

	/* Storms: events of the window that began then, and time that the program took in it. */
	u64 window_ns;
	u64 busy_ns;
	u32 in_window;
	u32 most_in_window;
	u32 mask_ms;
	u64 deaf_until; /* events before are lost */
	struct delayed_work recover;

	struct taut_path_stats stats;
	struct taut_log *log; /* or none */
	u32 sink_count;
	struct taut_sink sinks[TAUT_PATH_MOST_SINKS];
};

/* route.c */
struct taut_route *taut_route_start(struct taut_path_route *spec);
void taut_route_stop(struct taut_route *route);

/* event.c */
void taut_event_take(struct taut_route *route, u64 now, s64 value);
void taut_event_handle(struct taut_route *route, const struct taut_event *event);
void taut_event_recover(struct work_struct *work);

/* program.c */
int taut_program_get(struct taut_route *route, int fd);
void taut_program_put(struct taut_route *route);

/* thread.c */
int taut_thread_start(struct taut_route *route);
void taut_thread_stop(struct taut_route *route);

/* gpio.c */
int taut_gpio_get(struct taut_route *route, struct taut_path_route *spec);
void taut_gpio_put(struct taut_route *route);
bool taut_gpio_can_sleep(const struct taut_route *route);
int taut_gpio_source_start(struct taut_route *route);
void taut_gpio_source_stop(struct taut_route *route);

/* input.c */
int taut_input_start(struct taut_route *route);
void taut_input_stop(struct taut_route *route);

/* led.c */
int taut_led_get(struct taut_route *route, struct taut_sink *sink, u32 index);
void taut_led_set(struct taut_sink *sink, bool is_lit, bool is_thread);
void taut_led_put(struct taut_sink *sink);

/* udp.c */
int taut_udp_get(struct taut_sink *sink, const struct taut_path_end *end);
void taut_udp_put(struct taut_sink *sink);
int taut_udp_send(struct taut_sink *sink, s64 value);

/* log.c */
int taut_log_get(struct taut_route *route);
void taut_log_put(struct taut_route *route);
void taut_log_write(struct taut_route *route, const struct taut_event *event);
ssize_t taut_log_read(struct taut_log *log, char __user *to, size_t bytes, bool may_wait);
__poll_t taut_log_poll(struct taut_log *log, struct file *file, struct poll_table_struct *table);

/* loop.c */
int taut_loop(struct taut_route *route, struct taut_path_loop *loop);

#endif

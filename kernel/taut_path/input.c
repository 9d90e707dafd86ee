// SPDX-License-Identifier: GPL-2.0
/* Input devices as sources: events of one type and code, of all devices of that name, now and later. */

#include <linux/input.h>
#include <linux/ktime.h>
#include <linux/slab.h>

#include "path.h"

static struct taut_route *taut_input_route(struct input_handler *handler)
{
	return container_of(handler, struct taut_route, handler);
}

/* With the device's event_lock, and so with interrupts off but on PREEMPT_RT. */
static void taut_input_event(struct input_handle *handle, unsigned int type, unsigned int code, int value)
{
	struct taut_route *route = taut_input_route(handle->handler);

	if ((type << 16 | code) == route->input_event)
		taut_event_take(route, ktime_get_ns(), value);
}

static bool taut_input_match(struct input_handler *handler, struct input_dev *dev)
{
	return dev->name && !strcmp(dev->name, taut_input_route(handler)->input_name);
}

static int taut_input_connect(struct input_handler *handler, struct input_dev *dev, const struct input_device_id *id)
{
	struct input_handle *handle = kzalloc(sizeof(*handle), GFP_KERNEL);
	int error;

	if (!handle)
		return -ENOMEM;
	handle->dev = dev;
	handle->handler = handler;
	handle->name = "taut_path";
	error = input_register_handle(handle);
	if (error)
		goto no_handle;
	error = input_open_device(handle);
	if (error)
		goto not_open;
	atomic_inc(&taut_input_route(handler)->input_devices);
	return 0;

not_open:
	input_unregister_handle(handle);
no_handle:
	kfree(handle);
	return error;
}

static void taut_input_disconnect(struct input_handle *handle)
{
	atomic_dec(&taut_input_route(handle->handler)->input_devices);
	input_close_device(handle);
	input_unregister_handle(handle);
	kfree(handle);
}

int taut_input_start(struct taut_route *route)
{
	int error;

	/* All devices; `match` looks at their names. */
	route->input_ids[0].driver_info = 1;
	route->handler.name = "taut_path";
	route->handler.event = taut_input_event;
	route->handler.match = taut_input_match;
	route->handler.connect = taut_input_connect;
	route->handler.disconnect = taut_input_disconnect;
	route->handler.id_table = route->input_ids;
	error = input_register_handler(&route->handler);
	if (error) {
		route->handler.name = NULL;
		return error;
	}
	if (!atomic_read(&route->input_devices)) {
		taut_input_stop(route);
		return -ENODEV;
	}
	return 0;
}

void taut_input_stop(struct taut_route *route)
{
	if (!route->handler.name)
		return;
	input_unregister_handler(&route->handler);
	route->handler.name = NULL;
}

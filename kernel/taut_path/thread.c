// SPDX-License-Identifier: GPL-2.0
/* Routes on which something can sleep: a ring that the source fills, and a thread that empties it. */

#include <linux/kthread.h>
#include <linux/sched.h>

#include "path.h"

#define RING_EVENTS 1024

static int taut_thread_work(void *data)
{
	struct taut_route *route = data;
	struct taut_event event;

	while (!kthread_should_stop()) {
		set_current_state(TASK_INTERRUPTIBLE);
		if (kfifo_is_empty(&route->ring) && !kthread_should_stop())
			schedule();
		__set_current_state(TASK_RUNNING);
		while (kfifo_get(&route->ring, &event)) {
			taut_event_handle(route, &event);
			cond_resched();
		}
	}
	return 0;
}

int taut_thread_start(struct taut_route *route)
{
	struct task_struct *thread;
	int error;

	error = kfifo_alloc(&route->ring, RING_EVENTS, GFP_KERNEL);
	if (error)
		return error;
	thread = kthread_create(taut_thread_work, route, "taut_path/%u", route->id);
	if (IS_ERR(thread)) {
		kfifo_free(&route->ring);
		return PTR_ERR(thread);
	}
	sched_set_fifo(thread);
	route->thread = thread;
	wake_up_process(thread);
	return 0;
}

void taut_thread_stop(struct taut_route *route)
{
	if (!route->thread)
		return;
	kthread_stop(route->thread);
	kfifo_free(&route->ring);
}

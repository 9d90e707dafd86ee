// SPDX-License-Identifier: GPL-2.0
/*
 * The log of a route: records of events that passed, in a ring that the route fills and read(2) on its descriptor empties. What
 * has no room is counted. Readers are woken up by an irq_work, since the locks of a wait queue are not to be had where events
 * are handled (with raw locks held, and on PREEMPT_RT in hard irq).
 */

#include <linux/irq_work.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#include "path.h"

struct taut_log {
	/* One writer: the route, which handles one event at a time. */
	DECLARE_KFIFO_PTR(ring, struct taut_path_log);
	struct taut_path_log *records;
	/* Serialises readers. */
	struct mutex reading;
	wait_queue_head_t readers;
	struct irq_work wake;
};

static void taut_log_wake(struct irq_work *work)
{
	wake_up_interruptible(&container_of(work, struct taut_log, wake)->readers);
}

int taut_log_get(struct taut_route *route)
{
	struct taut_log *log = kzalloc(sizeof(*log), GFP_KERNEL);

	if (!log)
		return -ENOMEM;
	log->records = kvcalloc(TAUT_PATH_LOG_RECORDS, sizeof(*log->records), GFP_KERNEL);
	if (!log->records || kfifo_init(&log->ring, log->records, TAUT_PATH_LOG_RECORDS * sizeof(*log->records))) {
		kvfree(log->records);
		kfree(log);
		return -ENOMEM;
	}
	mutex_init(&log->reading);
	init_waitqueue_head(&log->readers);
	init_irq_work(&log->wake, taut_log_wake);
	route->log = log;
	return 0;
}

/* After the source and the thread: nobody writes any more; and nobody reads, since the descriptor is closed. */
void taut_log_put(struct taut_route *route)
{
	struct taut_log *log = route->log;

	if (!log)
		return;
	irq_work_sync(&log->wake);
	mutex_destroy(&log->reading);
	kvfree(log->records);
	kfree(log);
	route->log = NULL;
}

void taut_log_write(struct taut_route *route, const struct taut_event *event)
{
	struct taut_log *log = route->log;
	struct taut_path_log record = {
		.now_ns = event->now,
		/* The programs count the same: all that were long enough, this one included. */
		.count = route->stats.passed + route->stats.dropped + route->stats.bad + 1,
		.value = event->value,
	};

	if (!kfifo_put(&log->ring, record)) {
		route->stats.log_lost++;
		return;
	}
	/* With the barrier that makes the record visible to those who do not sleep yet. */
	if (wq_has_sleeper(&log->readers))
		irq_work_queue(&log->wake);
}

ssize_t taut_log_read(struct taut_log *log, char __user *to, size_t bytes, bool may_wait)
{
	unsigned int copied;
	int error;

	if (bytes < sizeof(struct taut_path_log))
		return -EINVAL;
	bytes = min_t(size_t, bytes, TAUT_PATH_LOG_RECORDS * sizeof(struct taut_path_log));
	do {
		if (kfifo_is_empty(&log->ring) && !may_wait)
			return -EAGAIN;
		if (wait_event_interruptible(log->readers, !kfifo_is_empty(&log->ring)))
			return -ERESTARTSYS;
		if (mutex_lock_interruptible(&log->reading))
			return -ERESTARTSYS;
		error = kfifo_to_user(&log->ring, to, bytes, &copied);
		mutex_unlock(&log->reading);
		/* Another reader may have been faster. */
	} while (!copied && !error);
	/* What was copied before a fault has left the ring. */
	return copied ? (ssize_t)copied : error;
}

__poll_t taut_log_poll(struct taut_log *log, struct file *file, struct poll_table_struct *table)
{
	poll_wait(file, &log->readers, table);
	return kfifo_is_empty(&log->ring) ? 0 : EPOLLIN | EPOLLRDNORM;
}

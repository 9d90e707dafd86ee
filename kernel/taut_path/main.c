// SPDX-License-Identifier: GPL-2.0
/* The control device: one route for each descriptor. */

#include <linux/atomic.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "path.h"

struct taut_control {
	/* Serialises the calls on one descriptor. */
	struct mutex lock;
	/* Once there, it stays until the descriptor is closed, which is after the last call on it. */
	struct taut_route *route;
};

static atomic_t taut_routes = ATOMIC_INIT(0);

/*
 * To open the device, and again to make something run: a descriptor can be handed on, and its receiver has no more rights by it.
 * CAP_BPF is what loading the program took; who is given one has not loaded it.
 */
static bool taut_control_may(void)
{
	return capable(CAP_SYS_ADMIN) && capable(CAP_BPF);
}

static int taut_control_open(struct inode *inode, struct file *file)
{
	struct taut_control *control;

	if (!taut_control_may())
		return -EPERM;
	control = kzalloc(sizeof(*control), GFP_KERNEL);
	if (!control)
		return -ENOMEM;
	mutex_init(&control->lock);
	file->private_data = control;
	/* No positions: pread(2) is refused, and a reader that waits holds up nobody. */
	return stream_open(inode, file);
}

static int taut_control_release(struct inode *inode, struct file *file)
{
	struct taut_control *control = file->private_data;

	if (control->route) {
		taut_route_stop(control->route);
		atomic_dec(&taut_routes);
	}
	mutex_destroy(&control->lock);
	kfree(control);
	return 0;
}

static long taut_control_start(struct taut_control *control, void __user *argument)
{
	struct taut_path_route *spec;
	struct taut_route *route;
	long error;

	if (!taut_control_may())
		return -EPERM;
	if (control->route)
		return -EBUSY;
	spec = memdup_user(argument, sizeof(*spec));
	if (IS_ERR(spec))
		return PTR_ERR(spec);
	route = taut_route_start(spec);
	error = PTR_ERR_OR_ZERO(route);
	/* After an error it says whose fault it was. */
	if (copy_to_user(argument, spec, sizeof(*spec)) && !error) {
		taut_route_stop(route);
		error = -EFAULT;
	}
	if (!error) {
		smp_store_release(&control->route, route);
		atomic_inc(&taut_routes);
	}
	kfree(spec);
	return error;
}

static long taut_control_stats(struct taut_control *control, void __user *argument)
{
	/* Counters that are 64 bits wide and written by one at a time: each is true, and they are of nearly the same moment. */
	if (!control->route)
		return -ENODATA;
	return copy_to_user(argument, &control->route->stats, sizeof(control->route->stats)) ? -EFAULT : 0;
}

static long taut_control_loop(struct taut_control *control, void __user *argument)
{
	struct taut_path_loop loop;
	int error;

	if (!taut_control_may())
		return -EPERM;
	if (!control->route)
		return -ENODATA;
	if (copy_from_user(&loop, argument, sizeof(loop)))
		return -EFAULT;
	error = taut_loop(control->route, &loop);
	if (error)
		return error;
	return copy_to_user(argument, &loop, sizeof(loop)) ? -EFAULT : 0;
}

static long taut_control_ioctl(struct file *file, unsigned int request, unsigned long argument)
{
	struct taut_control *control = file->private_data;
	void __user *pointer = (void __user *)argument;
	struct taut_path_info info = { .abi = TAUT_PATH_ABI, .routes = atomic_read(&taut_routes) };
	long result;

	if (request == TAUT_PATH_INFO)
		return copy_to_user(pointer, &info, sizeof(info)) ? -EFAULT : 0;
	if (mutex_lock_interruptible(&control->lock))
		return -ERESTARTSYS;
	switch (request) {
	case TAUT_PATH_START:
		result = taut_control_start(control, pointer);
		break;
	case TAUT_PATH_STATS:
		result = taut_control_stats(control, pointer);
		break;
	case TAUT_PATH_LOOP:
		result = taut_control_loop(control, pointer);
		break;
	default:
		result = -ENOTTY;
	}
	mutex_unlock(&control->lock);
	return result;
}

/* The descriptor's log, which lives as long as the call. */
static struct taut_log *taut_control_log(struct taut_control *control)
{
	/* Without the lock, which a call may hold for long. */
	struct taut_route *route = smp_load_acquire(&control->route);

	return route ? route->log : NULL;
}

static ssize_t taut_control_read(struct file *file, char __user *to, size_t bytes, loff_t *at)
{
	struct taut_log *log = taut_control_log(file->private_data);

	return log ? taut_log_read(log, to, bytes, !(file->f_flags & O_NONBLOCK)) : -ENODATA;
}

static __poll_t taut_control_poll(struct file *file, struct poll_table_struct *table)
{
	struct taut_log *log = taut_control_log(file->private_data);

	return log ? taut_log_poll(log, file, table) : EPOLLERR;
}

static const struct file_operations taut_control_fops = {
	.owner = THIS_MODULE,
	.open = taut_control_open,
	.release = taut_control_release,
	.read = taut_control_read,
	.poll = taut_control_poll,
	.unlocked_ioctl = taut_control_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice taut_control_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "taut_path",
	.fops = &taut_control_fops,
	.mode = 0600,
};

module_misc_device(taut_control_device);
MODULE_DESCRIPTION("Routes from inputs to outputs in the kernel, with a BPF program as the condition");
MODULE_AUTHOR("Tautline");
MODULE_LICENSE("GPL");

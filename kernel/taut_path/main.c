// SPDX-License-Identifier: GPL-2.0
/* The control device: one route for each descriptor. */

#include <linux/atomic.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "path.h"

struct control {
	/* Serialises the calls on one descriptor. */
	struct mutex lock;
	struct taut_route *route;
};

static atomic_t routes = ATOMIC_INIT(0);

static int control_open(struct inode *inode, struct file *file)
{
	struct control *control;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	control = kzalloc(sizeof(*control), GFP_KERNEL);
	if (!control)
		return -ENOMEM;
	mutex_init(&control->lock);
	file->private_data = control;
	return 0;
}

static int control_release(struct inode *inode, struct file *file)
{
	struct control *control = file->private_data;

	if (control->route) {
		taut_route_stop(control->route);
		atomic_dec(&routes);
	}
	mutex_destroy(&control->lock);
	kfree(control);
	return 0;
}

static long start(struct control *control, void __user *argument)
{
	struct taut_path_route *spec;
	struct taut_route *route;
	long error = 0;

	if (control->route)
		return -EBUSY;
	spec = memdup_user(argument, sizeof(*spec));
	if (IS_ERR(spec))
		return PTR_ERR(spec);
	route = taut_route_start(spec);
	if (IS_ERR(route)) {
		error = PTR_ERR(route);
	} else {
		control->route = route;
		atomic_inc(&routes);
	}
	/* After an error it says whose fault it was. */
	if (copy_to_user(argument, spec, sizeof(*spec)) && !error) {
		taut_route_stop(route);
		control->route = NULL;
		atomic_dec(&routes);
		error = -EFAULT;
	}
	kfree(spec);
	return error;
}

static long stats(struct control *control, void __user *argument)
{
	/* Counters that are 64 bits wide and written by one at a time: each is true, and they are of nearly the same moment. */
	if (!control->route)
		return -ENODATA;
	return copy_to_user(argument, &control->route->stats, sizeof(control->route->stats)) ? -EFAULT : 0;
}

static long loop(struct control *control, void __user *argument)
{
	struct taut_path_loop loop;
	int error;

	if (!control->route)
		return -ENODATA;
	if (copy_from_user(&loop, argument, sizeof(loop)))
		return -EFAULT;
	error = taut_loop(control->route, &loop);
	if (error)
		return error;
	return copy_to_user(argument, &loop, sizeof(loop)) ? -EFAULT : 0;
}

static long control_ioctl(struct file *file, unsigned int request, unsigned long argument)
{
	struct control *control = file->private_data;
	void __user *pointer = (void __user *)argument;
	struct taut_path_info info = { .abi = TAUT_PATH_ABI, .routes = atomic_read(&routes) };
	long result;

	if (request == TAUT_PATH_INFO)
		return copy_to_user(pointer, &info, sizeof(info)) ? -EFAULT : 0;
	if (mutex_lock_interruptible(&control->lock))
		return -ERESTARTSYS;
	switch (request) {
	case TAUT_PATH_START:
		result = start(control, pointer);
		break;
	case TAUT_PATH_STATS:
		result = stats(control, pointer);
		break;
	case TAUT_PATH_LOOP:
		result = loop(control, pointer);
		break;
	default:
		result = -ENOTTY;
	}
	mutex_unlock(&control->lock);
	return result;
}

static const struct file_operations control_fops = {
	.owner = THIS_MODULE,
	.open = control_open,
	.release = control_release,
	.unlocked_ioctl = control_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "taut_path",
	.fops = &control_fops,
	.mode = 0600,
};

module_misc_device(device);
MODULE_DESCRIPTION("Routes from inputs to outputs in the kernel, with a BPF program as the condition");
MODULE_AUTHOR("Tautline");
MODULE_LICENSE("GPL");

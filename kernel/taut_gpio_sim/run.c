// SPDX-License-Identifier: GPL-2.0
/*
 * Edges on a line of the simulated chip, made by a timer in hard irq, with the times of edges and outputs. In debugfs:
 *
 * taut_gpio_sim/run     write "LINE COUNT PERIOD_NS": that many edges, the first one falling, one each period. The write
 *                       returns a period after the last one.
 * taut_gpio_sim/stamps  of the last run: for each edge two 64-bit numbers in host order, CLOCK_MONOTONIC in ns: when it was
 *                       made, and when the first output was set between it and the next one (0: none was).
 * taut_gpio_sim/counts  of the last run, as text: edges made, outputs set on lines, and on the LED, until now.
 * taut_gpio_sim/led     whether the LED "taut-sim" is there; write 0 or 1.
 */

#include <linux/completion.h>
#include <linux/debugfs.h>
#include <linux/hrtimer.h>
#include <linux/leds.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "sim.h"

#define MOST_EDGES 1000000
#define SHORTEST_PERIOD 1000

struct stamp {
	u64 edge;
	u64 output;
};

DEFINE_MUTEX(sim_lock);
static DECLARE_COMPLETION(finished);
static struct dentry *directory;
static struct hrtimer timer;
static struct stamp *stamps;
/* The last edge, while no output was set after it. */
static struct stamp *unanswered;
static unsigned int wanted, made, line;
static atomic_t set_lines, set_led;
static u64 period;
static bool has_led;

void sim_stamp_output(bool is_led)
{
	struct stamp *stamp = READ_ONCE(unanswered);

	/* Only then a clock is read: a loop that sets outputs is not to be one of reading clocks. */
	if (stamp) {
		u64 now = ktime_get_ns();

		if (cmpxchg(&unanswered, stamp, NULL) == stamp)
			stamp->output = now;
	}
	atomic_inc(is_led ? &set_led : &set_lines);
}

static enum hrtimer_restart tick(struct hrtimer *t)
{
	if (made == wanted) {
		complete(&finished);
		return HRTIMER_NORESTART;
	}
	/* On a schedule: one that comes late does not move the next one. */
	hrtimer_forward(t, hrtimer_get_expires(t), ns_to_ktime(period));
	WRITE_ONCE(unanswered, &stamps[made]);
	stamps[made++].edge = ktime_get_ns();
	sim_toggle(sim_first, line);
	return HRTIMER_RESTART;
}

static int run(unsigned int new_line, unsigned int count, u64 new_period)
{
	int error;

	WRITE_ONCE(unanswered, NULL);
	memset(stamps, 0, count * sizeof(*stamps));
	wanted = count;
	made = 0;
	atomic_set(&set_lines, 0);
	atomic_set(&set_led, 0);
	line = new_line;
	period = new_period;
	sim_rest(sim_first, line, true);
	reinit_completion(&finished);
	hrtimer_start(&timer, ns_to_ktime(period), HRTIMER_MODE_REL_PINNED_HARD);
	error = wait_for_completion_killable(&finished);
	hrtimer_cancel(&timer);
	return error;
}

static ssize_t run_write(struct file *file, const char __user *buffer, size_t length, loff_t *position)
{
	unsigned int new_line, count;
	unsigned long long new_period;
	char text[64];
	int error;

	if (length >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, buffer, length))
		return -EFAULT;
	text[length] = '\0';
	if (sscanf(text, "%u %u %llu", &new_line, &count, &new_period) != 3 || new_line >= SIM_LINES || !count ||
	    count > MOST_EDGES || new_period < SHORTEST_PERIOD || new_period > NSEC_PER_SEC)
		return -EINVAL;
	error = mutex_lock_killable(&sim_lock);
	if (error)
		return error;
	error = sim_first ? run(new_line, count, new_period) : -ENODEV;
	mutex_unlock(&sim_lock);
	return error ?: length;
}

static ssize_t stamps_read(struct file *file, char __user *buffer, size_t length, loff_t *position)
{
	ssize_t done;

	mutex_lock(&sim_lock);
	done = simple_read_from_buffer(buffer, length, position, stamps, made * sizeof(*stamps));
	mutex_unlock(&sim_lock);
	return done;
}

static ssize_t counts_read(struct file *file, char __user *buffer, size_t length, loff_t *position)
{
	char text[96];
	int bytes = scnprintf(text, sizeof(text), "edges %u\noutputs %u\nled %u\n", READ_ONCE(made),
			      atomic_read(&set_lines), atomic_read(&set_led));

	return simple_read_from_buffer(buffer, length, position, text, bytes);
}

static void led_set(struct led_classdev *led, enum led_brightness brightness)
{
	sim_stamp_output(true);
}

static struct led_classdev led = { .name = "taut-sim", .max_brightness = 255, .brightness_set = led_set };

/* With sim_lock held. */
static int led_there(bool there)
{
	int error;

	if (there == has_led)
		return 0;
	if (!there) {
		led_classdev_unregister(&led);
		has_led = false;
		return 0;
	}
	led.flags = 0;
	error = led_classdev_register(NULL, &led);
	has_led = !error;
	return error;
}

static ssize_t led_write(struct file *file, const char __user *buffer, size_t length, loff_t *position)
{
	bool there;
	int error = kstrtobool_from_user(buffer, length, &there);

	if (error)
		return error;
	mutex_lock(&sim_lock);
	error = led_there(there);
	mutex_unlock(&sim_lock);
	return error ?: length;
}

static const struct file_operations run_fops = { .owner = THIS_MODULE, .write = run_write };
static const struct file_operations stamps_fops = { .owner = THIS_MODULE, .read = stamps_read };
static const struct file_operations counts_fops = { .owner = THIS_MODULE, .read = counts_read };
static const struct file_operations led_fops = { .owner = THIS_MODULE, .write = led_write };

int sim_run_init(void)
{
	int error;

	hrtimer_init(&timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	timer.function = tick;
	stamps = vzalloc(array_size(MOST_EDGES, sizeof(*stamps)));
	if (!stamps)
		return -ENOMEM;
	mutex_lock(&sim_lock);
	error = led_there(true);
	mutex_unlock(&sim_lock);
	if (error) {
		vfree(stamps);
		return error;
	}
	directory = debugfs_create_dir("taut_gpio_sim", NULL);
	debugfs_create_file("run", 0200, directory, NULL, &run_fops);
	debugfs_create_file("stamps", 0400, directory, NULL, &stamps_fops);
	debugfs_create_file("counts", 0400, directory, NULL, &counts_fops);
	debugfs_create_file("led", 0200, directory, NULL, &led_fops);
	return 0;
}

void sim_run_exit(void)
{
	debugfs_remove(directory);
	mutex_lock(&sim_lock);
	led_there(false);
	mutex_unlock(&sim_lock);
}

void sim_run_free(void)
{
	vfree(stamps);
}

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
 * taut_gpio_sim/leds    whether those of leds.c are; the same.
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
static DECLARE_COMPLETION(sim_finished);
static struct dentry *sim_directory;
static struct hrtimer sim_timer;
static struct stamp *sim_stamps;
/* The last edge, while no output was set after it. */
static struct stamp *sim_unanswered;
static unsigned int sim_wanted, sim_made, sim_line;
static atomic_t sim_set_lines, sim_set_led;
static u64 sim_period;
static bool sim_has_led;

void sim_stamp_output(bool is_led)
{
	struct stamp *stamp = READ_ONCE(sim_unanswered);

	/* Only then a clock is read: a loop that sets outputs is not to be one of reading clocks. */
	if (stamp) {
		u64 now = ktime_get_ns();

		if (cmpxchg(&sim_unanswered, stamp, NULL) == stamp)
			stamp->output = now;
	}
	atomic_inc(is_led ? &sim_set_led : &sim_set_lines);
}

static enum hrtimer_restart sim_tick(struct hrtimer *t)
{
	if (sim_made == sim_wanted) {
		complete(&sim_finished);
		return HRTIMER_NORESTART;
	}
	/* On a schedule: one that comes late does not move the next one. */
	hrtimer_forward(t, hrtimer_get_expires(t), ns_to_ktime(sim_period));
	WRITE_ONCE(sim_unanswered, &sim_stamps[sim_made]);
	sim_stamps[sim_made++].edge = ktime_get_ns();
	sim_toggle(sim_first, sim_line);
	return HRTIMER_RESTART;
}

static int sim_run(unsigned int line, unsigned int count, u64 period)
{
	int error;

	WRITE_ONCE(sim_unanswered, NULL);
	memset(sim_stamps, 0, count * sizeof(*sim_stamps));
	sim_wanted = count;
	sim_made = 0;
	atomic_set(&sim_set_lines, 0);
	atomic_set(&sim_set_led, 0);
	sim_line = line;
	sim_period = period;
	sim_rest(sim_first, line, true);
	reinit_completion(&sim_finished);
	hrtimer_start(&sim_timer, ns_to_ktime(sim_period), HRTIMER_MODE_REL_PINNED_HARD);
	error = wait_for_completion_killable(&sim_finished);
	hrtimer_cancel(&sim_timer);
	return error;
}

static ssize_t sim_run_write(struct file *file, const char __user *buffer, size_t length, loff_t *position)
{
	unsigned int line, count;
	unsigned long long period;
	char text[64];
	int error;

	if (length >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, buffer, length))
		return -EFAULT;
	text[length] = '\0';
	if (sscanf(text, "%u %u %llu", &line, &count, &period) != 3 || line >= SIM_LINES || !count ||
	    count > MOST_EDGES || period < SHORTEST_PERIOD || period > NSEC_PER_SEC)
		return -EINVAL;
	error = mutex_lock_killable(&sim_lock);
	if (error)
		return error;
	error = sim_first ? sim_run(line, count, period) : -ENODEV;
	mutex_unlock(&sim_lock);
	return error ?: length;
}

static ssize_t sim_stamps_read(struct file *file, char __user *buffer, size_t length, loff_t *position)
{
	ssize_t done;

	mutex_lock(&sim_lock);
	done = simple_read_from_buffer(buffer, length, position, sim_stamps, sim_made * sizeof(*sim_stamps));
	mutex_unlock(&sim_lock);
	return done;
}

static ssize_t sim_counts_read(struct file *file, char __user *buffer, size_t length, loff_t *position)
{
	char text[96];
	int bytes = scnprintf(text, sizeof(text), "edges %u\noutputs %u\nled %u\n", READ_ONCE(sim_made),
			      atomic_read(&sim_set_lines), atomic_read(&sim_set_led));

	return simple_read_from_buffer(buffer, length, position, text, bytes);
}

static void sim_led_set(struct led_classdev *led, enum led_brightness brightness)
{
	sim_stamp_output(true);
}

static struct led_classdev sim_led = { .name = "taut-sim", .max_brightness = 255, .brightness_set = sim_led_set };

/* With sim_lock held. */
static int sim_led_there(bool there)
{
	int error;

	if (there == sim_has_led)
		return 0;
	if (!there) {
		led_classdev_unregister(&sim_led);
		sim_has_led = false;
		return 0;
	}
	sim_led.flags = 0;
	error = led_classdev_register(NULL, &sim_led);
	sim_has_led = !error;
	return error;
}

static ssize_t sim_led_write(struct file *file, const char __user *buffer, size_t length, loff_t *position)
{
	bool there;
	int error = kstrtobool_from_user(buffer, length, &there);

	if (error)
		return error;
	mutex_lock(&sim_lock);
	error = sim_led_there(there);
	mutex_unlock(&sim_lock);
	return error ?: length;
}

static ssize_t sim_leds_write(struct file *file, const char __user *buffer, size_t length, loff_t *position)
{
	bool there;
	int error = kstrtobool_from_user(buffer, length, &there);

	if (error)
		return error;
	mutex_lock(&sim_lock);
	error = sim_leds_there(there);
	mutex_unlock(&sim_lock);
	return error ?: length;
}

static const struct file_operations sim_run_fops = { .owner = THIS_MODULE, .write = sim_run_write };
static const struct file_operations sim_stamps_fops = { .owner = THIS_MODULE, .read = sim_stamps_read };
static const struct file_operations sim_counts_fops = { .owner = THIS_MODULE, .read = sim_counts_read };
static const struct file_operations sim_led_fops = { .owner = THIS_MODULE, .write = sim_led_write };
static const struct file_operations sim_leds_fops = { .owner = THIS_MODULE, .write = sim_leds_write };

int sim_run_init(void)
{
	int error;

	hrtimer_init(&sim_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	sim_timer.function = sim_tick;
	sim_stamps = vzalloc(array_size(MOST_EDGES, sizeof(*sim_stamps)));
	if (!sim_stamps)
		return -ENOMEM;
	mutex_lock(&sim_lock);
	error = sim_led_there(true);
	mutex_unlock(&sim_lock);
	if (error) {
		vfree(sim_stamps);
		return error;
	}
	sim_directory = debugfs_create_dir("taut_gpio_sim", NULL);
	debugfs_create_file("run", 0200, sim_directory, NULL, &sim_run_fops);
	debugfs_create_file("stamps", 0400, sim_directory, NULL, &sim_stamps_fops);
	debugfs_create_file("counts", 0400, sim_directory, NULL, &sim_counts_fops);
	debugfs_create_file("led", 0200, sim_directory, NULL, &sim_led_fops);
	debugfs_create_file("leds", 0200, sim_directory, NULL, &sim_leds_fops);
	return 0;
}

void sim_run_exit(void)
{
	debugfs_remove(sim_directory);
	mutex_lock(&sim_lock);
	sim_leds_there(false);
	sim_led_there(false);
	mutex_unlock(&sim_lock);
}

void sim_run_free(void)
{
	vfree(sim_stamps);
}

// SPDX-License-Identifier: GPL-2.0
/* Faults that a debug kernel has to find: one for each load, by the parameter `fault`. */

#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

static char *fault = "";
module_param(fault, charp, 0);

static DEFINE_MUTEX(faulty_mutex);
static DEFINE_RAW_SPINLOCK(faulty_raw);
static DEFINE_SPINLOCK(faulty_one);
static DEFINE_SPINLOCK(faulty_other);

static void faulty_freed(void)
{
	u32 *memory = kmalloc(64, GFP_KERNEL);

	if (!memory)
		return;
	/* The compiler would see it. */
	OPTIMIZER_HIDE_VAR(memory);
	kfree(memory);
	pr_info("faulty: %u\n", READ_ONCE(memory[1]));
}

static void faulty_sleep(void)
{
	raw_spin_lock(&faulty_raw);
	mutex_lock(&faulty_mutex);
	mutex_unlock(&faulty_mutex);
	raw_spin_unlock(&faulty_raw);
}

static void faulty_nesting(void)
{
	raw_spin_lock(&faulty_raw);
	spin_lock(&faulty_one);
	spin_unlock(&faulty_one);
	raw_spin_unlock(&faulty_raw);
}

static void faulty_order(void)
{
	spin_lock(&faulty_one);
	spin_lock(&faulty_other);
	spin_unlock(&faulty_other);
	spin_unlock(&faulty_one);
	spin_lock(&faulty_other);
	spin_lock(&faulty_one);
	spin_unlock(&faulty_one);
	spin_unlock(&faulty_other);
}

static int __init faulty_init(void)
{
	if (!strcmp(fault, "freed"))
		faulty_freed();
	else if (!strcmp(fault, "sleep"))
		faulty_sleep();
	else if (!strcmp(fault, "nesting"))
		faulty_nesting();
	else if (!strcmp(fault, "order"))
		faulty_order();
	else if (!strcmp(fault, "leak"))
		pr_info("faulty: %d\n", !kmalloc(100, GFP_KERNEL));
	return 0;
}

static void __exit faulty_exit(void)
{
}

module_init(faulty_init);
module_exit(faulty_exit);
MODULE_DESCRIPTION("Faults that a debug kernel has to find");
MODULE_AUTHOR("Tautline");
MODULE_LICENSE("GPL");

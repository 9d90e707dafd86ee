/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * /dev/taut_path: routes from an input to outputs, run by the kernel where the input's event happens.
 *
 * A descriptor holds one route at most: TAUT_PATH_START makes it, closing the descriptor ends it. Opening, TAUT_PATH_START and
 * TAUT_PATH_LOOP need CAP_SYS_ADMIN and CAP_BPF (EPERM), so a descriptor that is handed on gives no right to make something run.
 * Reading gives the route's log, if it has one: whole records of struct taut_path_log, as many as there are and have room (EINVAL:
 * not even one; EAGAIN: none is there, with O_NONBLOCK; ENODATA: no log). poll(2) tells whether there are some.
 * All structures have the same layout for 32-bit and 64-bit callers; what is reserved must be 0.
 */
#ifndef TAUT_PATH_H
#define TAUT_PATH_H

#include <linux/ioctl.h>
#include <linux/types.h>

/*
 * Changes when a structure or the meaning of a field does; TAUT_PATH_INFO stays as it is, so that either side can tell the other's.
 * 2: `log` in the request (reserved before), read(2) and poll(2), `log_lost` in the counters.
 * 3: `stopped` in the counters; programs that call nothing and jump forward only; CAP_BPF; LEDs by an irq_work.
 */
#define TAUT_PATH_ABI 3

#define TAUT_PATH_NAME_BYTES 64
#define TAUT_PATH_MOST_SINKS 16
#define TAUT_PATH_OUTPUTS 8
#define TAUT_PATH_BUCKETS 64
#define TAUT_PATH_LOG_RECORDS 8192 /* that wait to be read; those beyond are counted as lost */

/* Kinds of ends. */
#define TAUT_PATH_GPIO 1 /* `name`: the chip's label; `number`: the line's offset */
#define TAUT_PATH_INPUT 2 /* source; `name`: the device's; `number`: type of the event << 16 | code */
#define TAUT_PATH_LED 3 /* sink; the trigger "taut-path-ID-INDEX", to be given to a LED in /sys/class/leds */
#define TAUT_PATH_UDP 4 /* sink; `address`: 8 bytes in network byte order are sent there */

/* Flags of GPIO lines. */
#define TAUT_PATH_RISING 1 /* source: edges to active */
#define TAUT_PATH_FALLING 2 /* source: edges to inactive */
#define TAUT_PATH_ACTIVE_LOW 4
#define TAUT_PATH_PULL_UP 8
#define TAUT_PATH_PULL_DOWN 16
#define TAUT_PATH_PULL_OFF 32

/* Where a route runs. */
#define TAUT_PATH_AUTO 0 /* in hard irq when nothing on it can sleep, else in a thread */
#define TAUT_PATH_HARDIRQ 1 /* LEDs right after it, in an irq_work; EDEADLK: something can sleep (on PREEMPT_RT, everything) */
#define TAUT_PATH_THREAD 2 /* a SCHED_FIFO kernel thread behind a ring */

/* Conditions. */
#define TAUT_PATH_PROGRAM 0 /* the BPF program `program` */
#define TAUT_PATH_IS_ZERO 1 /* value == 0 in C, sending the value: what programs are measured against */

struct taut_path_end {
	__u32 kind;
	__u32 flags;
	__u32 number;
	__u32 output; /* sinks: which output of the program */
	union {
		char name[TAUT_PATH_NAME_BYTES]; /* ends with 0 */
		struct {
			__u16 family; /* AF_INET, AF_INET6 */
			__be16 port;
			__u32 scope;
			__u8 bytes[16]; /* of the address; IPv4: the first four */
		} address;
	};
};

/*
 * The program is of type XDP (EINVAL) and runs over this record. It is for a plain packet of any device: not for entries of maps
 * (expected_attach_type), a device of its own or packets in pieces, and has no types (BTF), by which others could put a function
 * in its place (EOPNOTSUPP). It may use array maps and no others (EACCES), and have 65536 instructions after the verifier's
 * changes (E2BIG). It calls nothing and jumps forward only (ENOEXEC), so each instruction is executed once at most. Should it still
 * take more than 100 us eight times in a row, the route is stopped.
 */
struct taut_path_record {
	__u64 now_ns; /* CLOCK_MONOTONIC, when the event was taken */
	__s64 outputs[TAUT_PATH_OUTPUTS];
	__s64 value;
};

/* What the program returns: the event is too short for its fields, does not pass, passes. */
#define TAUT_PATH_SHORT 0
#define TAUT_PATH_DROPPED 1
#define TAUT_PATH_PASSED 2

/* `at_fault` after an error; a sink's is TAUT_PATH_SINK + its index. */
#define TAUT_PATH_FAULT_REQUEST 0
#define TAUT_PATH_FAULT_PROGRAM 1
#define TAUT_PATH_FAULT_SOURCE 2
#define TAUT_PATH_FAULT_SINK 16

/* A record of the log: an event that passed. */
struct taut_path_log {
	__u64 now_ns; /* CLOCK_MONOTONIC, when the event was taken */
	__u64 count; /* number of the event, of those long enough for the condition */
	__s64 value;
};

struct taut_path_route {
	__u32 abi; /* TAUT_PATH_ABI; EPROTONOSUPPORT for another one, which is then the module's */
	__u32 place; /* TAUT_PATH_AUTO …; afterwards where it runs */
	__s32 program; /* file descriptor */
	__u32 condition;
	__u32 most_per_second; /* more events than that, and the source is masked for a while; 0: 200000 */
	__u32 mask_ms; /* for how long; 0: 10 */
	__u32 sinks;
	__u32 id; /* out */
	__u32 at_fault; /* out, after an error */
	__u32 log; /* 1: events that pass are logged; 0: they are not */
	struct taut_path_end source;
	struct taut_path_end sink[TAUT_PATH_MOST_SINKS];
};

struct taut_path_stats {
	__u64 events; /* taken */
	__u64 passed;
	__u64 dropped;
	__u64 short_events;
	__u64 lost; /* the ring was full, or the source was masked (input devices, chips that can sleep) or stopped */
	__u64 failed; /* sinks that could not be set */
	__u64 masked; /* times that the source was masked: too many events, or the program took half of the time in hard irq */
	__u64 bad; /* the program returned something else */
	__u64 log_lost; /* records of the log that had no room */
	__u64 stopped; /* 1: the program took too long, and the route takes no events any more */
	__u64 histogram[TAUT_PATH_BUCKETS]; /* n: from 2^n ns, from taking the event to the last sink */
};

struct taut_path_info {
	__u32 abi;
	__u32 routes; /* at work, of all descriptors */
};

/* For measuring: input read, condition evaluated and outputs set, `count` times; GPIO routes in hard irq only. ETIME: the
 * program takes too long. */
struct taut_path_loop {
	__u32 count; /* up to 1000000 */
	__u32 reserved;
	__u64 ns; /* out: for all */
};

#define TAUT_PATH_INFO _IOR(0xE7, 0, struct taut_path_info)
#define TAUT_PATH_START _IOWR(0xE7, 1, struct taut_path_route)
#define TAUT_PATH_STATS _IOR(0xE7, 2, struct taut_path_stats)
#define TAUT_PATH_LOOP _IOWR(0xE7, 3, struct taut_path_loop)

#endif

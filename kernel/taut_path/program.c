// SPDX-License-Identifier: GPL-2.0
/*
 * The condition: a BPF program of type XDP over an event record. This type is there in every kernel with networking, needs no
 * types of the kernel (BTF), and is what the same condition is in a network route.
 *
 * The verifier has proven that the program stays within the record and its maps, for a place where the network core runs it. That
 * is no place where interrupts are off and a raw lock is held, with no device around the packet; so the program is looked at again
 * here. What is looked at is what runs: after the verifier's last changes `insnsi` is what the JIT has translated, and it stays.
 */

#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/mutex.h>
#include <linux/netdevice.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <net/xdp.h>

#include "path.h"

/* Headroom, record, and what XDP keeps free behind a packet. */
#define BUFFER_BYTES 1024

/* Each is executed once at most, so this is a bound of the time too; none of ours comes near it. */
#define MOST_INSTRUCTIONS 65536

/*
 * Whether it is a program for a plain packet of any device, as dev_xdp_attach() (net/core/dev.c) would have it; and stays the
 * program that was verified.
 */
static bool taut_program_is_plain(const struct bpf_prog *program)
{
	const struct bpf_prog_aux *aux = program->aux;

	/* Those for entries of maps read xdp_buff.txq, which is none here. 0 is what loaders write that don't care. */
	if (program->expected_attach_type && program->expected_attach_type != BPF_XDP)
		return false;
	/* Their calls take the xdp_buff for the larger structure of a driver's. */
	if (bpf_prog_is_dev_bound(aux))
		return false;
	if (aux->xdp_has_frags)
		return false;
	/* With types others can put a function of their own in its place (freplace), or around it (fentry). */
	return !aux->btf;
}

static bool taut_program_has_only_arrays(const struct bpf_prog *program)
{
	struct bpf_prog_aux *aux = program->aux;
	bool only = true;
	u32 i;

	/* BPF_PROG_BIND_MAP puts another array of maps in the place of this one. */
	mutex_lock(&aux->used_maps_mutex);
	for (i = 0; i < aux->used_map_cnt; i++)
		only &= aux->used_maps[i]->map_type == BPF_MAP_TYPE_ARRAY;
	mutex_unlock(&aux->used_maps_mutex);
	return only;
}

static bool taut_jump_is_acceptable(const struct bpf_insn *insn)
{
	/* Of the long form (BPF_JMP32 | BPF_JA, 6.6), the immediate value is the distance. */
	if (insn->code == (BPF_JMP32 | BPF_JA))
		return insn->imm >= 0;
	switch (BPF_OP(insn->code)) {
	case BPF_JA:
	case BPF_JEQ:
	case BPF_JGT:
	case BPF_JSET:
	case BPF_JNE:
	case BPF_JSGT:
	case BPF_JSGE:
	case BPF_JGE:
	case BPF_JLT:
	case BPF_JLE:
	case BPF_JSLT:
	case BPF_JSLE:
		return insn->off >= 0;
	case BPF_EXIT:
		return insn->code == (BPF_JMP | BPF_EXIT);
	default:
		/* Calls of all kinds; BPF_CALL_ARGS and conditional jumps of the verifier's (0xe0), BPF_TAIL_CALL (0xf0). */
		return false;
	}
}

static bool taut_instruction_is_acceptable(const struct bpf_insn *insn)
{
	switch (BPF_CLASS(insn->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		/* A move's is the width of a sign (8, 16, 32); others stand for changes of address spaces. A division's is 1 if signed. */
		if (BPF_OP(insn->code) == BPF_MOV)
			return !insn->off || insn->off == 8 || insn->off == 16 || insn->off == 32;
		return !insn->off || insn->off == 1;
	case BPF_LD:
		return insn->code == (BPF_LD | BPF_IMM | BPF_DW);
	case BPF_LDX:
		/* 0x80: with its sign (BPF_MEMSX, 6.6). Not: through pointers that may be wild (BPF_PROBE_MEM). */
		return BPF_MODE(insn->code) == BPF_MEM || BPF_MODE(insn->code) == 0x80;
	case BPF_ST:
		/* 0xc0: the barrier that the verifier puts in (BPF_NOSPEC). */
		return BPF_MODE(insn->code) == BPF_MEM || insn->code == (BPF_ST | 0xc0);
	case BPF_STX:
		return BPF_MODE(insn->code) == BPF_MEM || BPF_MODE(insn->code) == BPF_ATOMIC;
	case BPF_JMP:
	case BPF_JMP32:
		return taut_jump_is_acceptable(insn);
	}
	return false;
}

/* Whether it goes forward only and calls nothing: no helper, function of the kernel or of its own, or other program. */
static bool taut_program_goes_straight_on(const struct bpf_prog *program)
{
	u32 i;

	/* Functions of its own are programs beside this one. */
	if (program->aux->func_cnt)
		return false;
	for (i = 0; i < program->len; i++) {
		const struct bpf_insn *insn = &program->insnsi[i];

		if (!taut_instruction_is_acceptable(insn))
			return false;
		/* Its second half is no instruction. */
		i += insn->code == (BPF_LD | BPF_IMM | BPF_DW);
	}
	return true;
}

/* 0, or what taut_path.h has for it. */
static int taut_program_is_acceptable(const struct bpf_prog *program)
{
	if (!taut_program_is_plain(program))
		return -EOPNOTSUPP;
	if (program->len > MOST_INSTRUCTIONS)
		return -E2BIG;
	if (!taut_program_has_only_arrays(program))
		return -EACCES;
	return taut_program_goes_straight_on(program) ? 0 : -ENOEXEC;
}

/* The record with its surroundings, as XDP has a packet. */
static void taut_program_frame(struct taut_route *route)
{
	xdp_init_buff(&route->frame, BUFFER_BYTES, &route->rxq);
	xdp_prepare_buff(&route->frame, route->buffer, XDP_PACKET_HEADROOM, sizeof(struct taut_path_record), false);
}

int taut_program_get(struct taut_route *route, int fd)
{
	struct bpf_prog *program = bpf_prog_get_type_dev(fd, BPF_PROG_TYPE_XDP, false);
	int error;

	if (IS_ERR(program))
		return PTR_ERR(program);
	BUILD_BUG_ON(BUFFER_BYTES < XDP_PACKET_HEADROOM + sizeof(struct taut_path_record) +
				    SKB_DATA_ALIGN(sizeof(struct skb_shared_info)));
	error = taut_program_is_acceptable(program);
	if (!error) {
		route->buffer = kzalloc(BUFFER_BYTES, GFP_KERNEL);
		error = route->buffer ? 0 : -ENOMEM;
	}
	if (error) {
		bpf_prog_put(program);
		return error;
	}
	/* Something for what a program may ask about the device. */
	route->rxq.dev = init_net.loopback_dev;
	route->program = program;
	taut_program_frame(route);
	return 0;
}

void taut_program_put(struct taut_route *route)
{
	if (route->program)
		bpf_prog_put(route->program);
	kfree(route->buffer);
}

//! Numbers of helper functions (linux/bpf.h, bpf-helpers(7)).
#![expect(missing_docs, reason = "they are the names of bpf-helpers(7)")]

pub const MAP_LOOKUP_ELEM: i32 = 1;
pub const MAP_UPDATE_ELEM: i32 = 2;
pub const MAP_DELETE_ELEM: i32 = 3;
pub const KTIME_GET_NS: i32 = 5;
pub const SKB_STORE_BYTES: i32 = 9;
pub const L4_CSUM_REPLACE: i32 = 11;
pub const TAIL_CALL: i32 = 12;
pub const CLONE_REDIRECT: i32 = 13;
pub const GET_CURRENT_PID_TGID: i32 = 14;
pub const GET_CURRENT_COMM: i32 = 16;
pub const REDIRECT: i32 = 23;
pub const CSUM_DIFF: i32 = 28;
pub const GET_CURRENT_TASK: i32 = 35;
pub const SKB_CHANGE_TAIL: i32 = 38;
pub const SKB_PULL_DATA: i32 = 39;
pub const CSUM_UPDATE: i32 = 40;
pub const XDP_ADJUST_TAIL: i32 = 65;
pub const SPIN_LOCK: i32 = 93;
pub const SPIN_UNLOCK: i32 = 94;
pub const PROBE_READ_KERNEL: i32 = 113;
pub const GET_NS_CURRENT_PID_TGID: i32 = 120;
pub const RINGBUF_OUTPUT: i32 = 130;
pub const RINGBUF_RESERVE: i32 = 131;
pub const RINGBUF_SUBMIT: i32 = 132;
pub const CSUM_LEVEL: i32 = 135;

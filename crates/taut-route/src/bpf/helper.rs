//! Numbers of helper functions (linux/bpf.h, bpf-helpers(7)).

pub(super) const KTIME_GET_NS: i32 = 5;
pub(super) const SKB_STORE_BYTES: i32 = 9;
pub(super) const L4_CSUM_REPLACE: i32 = 11;
pub(super) const TAIL_CALL: i32 = 12;
pub(super) const CLONE_REDIRECT: i32 = 13;
pub(super) const MAP_LOOKUP_ELEM: i32 = 1;
pub(super) const REDIRECT: i32 = 23;
pub(super) const CSUM_DIFF: i32 = 28;
pub(super) const SKB_CHANGE_TAIL: i32 = 38;
pub(super) const SKB_PULL_DATA: i32 = 39;
pub(super) const CSUM_UPDATE: i32 = 40;
pub(super) const XDP_ADJUST_TAIL: i32 = 65;
pub(super) const SPIN_LOCK: i32 = 93;
pub(super) const SPIN_UNLOCK: i32 = 94;
pub(super) const RINGBUF_OUTPUT: i32 = 130;
pub(super) const CSUM_LEVEL: i32 = 135;

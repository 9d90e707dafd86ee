//! The tracepoints that a trace uses, and how their programs are loaded and attached.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use taut_bpf::instruction::Instruction;
use taut_bpf::sys::{self, ProgramKind, Purpose};
use taut_bpf::{BpfError, Btf};

use super::error::Error;
use super::layout::REPEATS;
use super::record::What;
use super::scope::Scope;
use super::writer::Plan;

/// Both tell when a thread that was ready to run had no processor.
pub(super) const SWITCH: &str = "sched_switch";
pub(super) const WAKING: &str = "sched_waking";
/// When a segment has left the queue of its device.
const STARTS: &str = "net_dev_start_xmit";

/// A tracepoint, the structures that its first arguments point to (empty for one that may be anything), and whether a
/// trace is nothing without it.
pub(super) struct Hook {
    pub(super) name: &'static str,
    pub(super) arguments: &'static [&'static str],
    pub(super) is_needed: bool,
    pub(super) code: fn(&Plan<'_>) -> Option<Vec<Instruction>>,
}

pub(super) const HOOKS: [Hook; 19] = [
    // Those that undo something stand before those that do it.
    Hook { name: "softirq_exit", arguments: &[], is_needed: false, code: |plan| Some(plan.softirq_exit()) },
    Hook {
        name: "timer_expire_exit",
        arguments: &["timer_list"],
        is_needed: false,
        code: |plan| plan.offsets.timer_function.map(|_| plan.timer(None)),
    },
    Hook {
        name: "timer_expire_entry",
        arguments: &["timer_list"],
        is_needed: false,
        code: |plan| plan.offsets.timer_function.map(|function| plan.timer(Some(function))),
    },
    Hook {
        name: "hrtimer_expire_exit",
        arguments: &["hrtimer"],
        is_needed: false,
        code: |plan| plan.offsets.hrtimer_function.map(|_| plan.timer(None)),
    },
    Hook {
        name: "hrtimer_expire_entry",
        arguments: &["hrtimer"],
        is_needed: false,
        code: |plan| plan.offsets.hrtimer_function.map(|function| plan.timer(Some(function))),
    },
    Hook {
        name: SWITCH,
        arguments: &["", "task_struct", "task_struct"],
        is_needed: false,
        code: |plan| plan.offsets.task_state.map(|state| plan.switch(state)),
    },
    Hook { name: WAKING, arguments: &["task_struct"], is_needed: false, code: |plan| Some(plan.waking()) },
    Hook { name: "sched_process_exit", arguments: &["task_struct"], is_needed: false, code: |plan| Some(plan.exit()) },
    Hook {
        name: "sched_process_fork",
        arguments: &["task_struct", "task_struct"],
        is_needed: false,
        code: |plan| (plan.scope == Scope::Processes).then(|| plan.fork()),
    },
    Hook { name: "inet_sock_set_state", arguments: &["sock"], is_needed: true, code: |plan| Some(plan.state()) },
    Hook { name: "sys_exit", arguments: &["pt_regs"], is_needed: true, code: |plan| Some(plan.call_return()) },
    Hook { name: "sys_enter", arguments: &["pt_regs"], is_needed: true, code: |plan| Some(plan.call()) },
    Hook {
        name: "sock_send_length",
        arguments: &["sock"],
        is_needed: false,
        code: |plan| Some(plan.transfer(What::Written)),
    },
    Hook {
        name: "sock_recv_length",
        arguments: &["sock"],
        is_needed: false,
        code: |plan| Some(plan.transfer(What::Taken)),
    },
    Hook {
        name: STARTS,
        arguments: &["sk_buff", "net_device"],
        is_needed: false,
        code: |plan| plan.offsets.device_queue.map(|queue| plan.start(queue)),
    },
    // Without it whatever is sent again is a gap: it is attached before what tells of segments, and detached after.
    Hook { name: REPEATS, arguments: &["sock", "sk_buff"], is_needed: true, code: |plan| Some(plan.repeat()) },
    Hook { name: "net_dev_queue", arguments: &["sk_buff"], is_needed: true, code: |plan| Some(plan.queue()) },
    Hook { name: "sk_data_ready", arguments: &["sock"], is_needed: false, code: |plan| Some(plan.ready()) },
    Hook { name: "tcp_probe", arguments: &["sock", "sk_buff"], is_needed: true, code: |plan| Some(plan.receive()) },
];

/// The hooks whose programs write records.
pub(super) const WRITERS: [&str; 12] = [
    SWITCH,
    "sched_process_exit",
    "inet_sock_set_state",
    "sys_exit",
    "sys_enter",
    "sock_send_length",
    "sock_recv_length",
    STARTS,
    "net_dev_queue",
    REPEATS,
    "sk_data_ready",
    "tcp_probe",
];

/// The hooks whose programs load members through the types of their arguments: they look into a structure to tell who
/// is traced, which by a call of the kernel costs more than all the rest of the question.
pub(super) const TYPED: [&str; 5] = [SWITCH, WAKING, STARTS, "net_dev_queue", "tcp_probe"];

impl Hook {
    /// How its program is loaded.
    pub(super) fn kind(&self, btf: &Btf) -> Option<(ProgramKind, Purpose)> {
        if !TYPED.contains(&self.name) {
            return Some((ProgramKind::RawTracepoint, Purpose::default()));
        }
        Some((ProgramKind::Tracing, Purpose::typed_tracepoint(btf.tracepoint_id(self.name)?)))
    }
}

/// Loads and attaches one, the program before its link; nothing for a hook that this scope has no use for.
pub(super) fn attach(hook: &Hook, plan: &Plan<'_>, btf: &Btf) -> Result<Option<(OwnedFd, OwnedFd)>, Error> {
    let Some(code) = (hook.code)(plan) else { return Ok(None) };
    let kind = hook.kind(btf).ok_or_else(|| absent(hook.name))?;
    attach_program(hook.name, hook.arguments, kind, &code, btf).map(Some)
}

fn absent(hook: &'static str) -> Error {
    Error::Hook { hook, why: "the kernel's types do not have it".to_owned() }
}

/// Loads a program and attaches it to a tracepoint whose first arguments point to these structures (empty for one that
/// may be anything); the program before its link.
///
/// # Errors
/// A right is missing, or this kernel has no such tracepoint.
pub(crate) fn attach_program(
    hook: &'static str,
    arguments: &[&str],
    (kind, purpose): (ProgramKind, Purpose),
    code: &[Instruction],
    btf: &Btf,
) -> Result<(OwnedFd, OwnedFd), Error> {
    let wrong = |why: String| Error::Hook { hook, why };
    let known = btf.tracepoint(hook).ok_or_else(|| absent(hook))?;
    for (index, expected) in arguments.iter().enumerate() {
        let found = known.get(index).and_then(Option::as_deref);
        if !expected.is_empty() && found != Some(*expected) {
            let found = found.unwrap_or("something else");
            return Err(wrong(format!("argument {} points to {found} and not to {expected}", index + 1)));
        }
    }
    let program = taut_bpf::load(kind, code, purpose, hook)?;
    let name = CString::new(hook).map_err(|error| wrong(error.to_string()))?;
    let name = Some(name.as_c_str()).filter(|_| kind == ProgramKind::RawTracepoint);
    let link = sys::raw_tracepoint(program.as_fd(), name).map_err(BpfError::of("attach to a tracepoint"))?;
    Ok((program, link))
}

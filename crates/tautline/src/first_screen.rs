//! What `taut` says without a command: what to run for which question, and what this host allows.

use std::fs;
use std::thread;

/// What of this host decides what can be asked.
#[derive(Debug)]
struct Host {
    kernel: String,
    processors: usize,
    has_types: bool,
    may_trace: bool,
    may_see_all: bool,
    adapters: usize,
}

// linux/capability.h
const DAC_READ_SEARCH: u32 = 2;
const SYS_PTRACE: u32 = 19;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

impl Host {
    fn look() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let effective = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
        let has = |capability: u32| effective & 1 << capability != 0;
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        // Their connections stand there as well: `hci0:64`.
        let adapters = fs::read_dir("/sys/class/bluetooth").into_iter().flatten().flatten();
        Self {
            kernel: release.trim().to_owned(),
            processors: thread::available_parallelism().map_or(1, usize::from),
            has_types: fs::metadata("/sys/kernel/btf/vmlinux").is_ok(),
            may_trace: has(SYS_ADMIN) || has(BPF) && has(PERFMON),
            may_see_all: has(SYS_PTRACE) && has(DAC_READ_SEARCH),
            adapters: adapters.filter(|entry| !entry.file_name().to_string_lossy().contains(':')).count(),
        }
    }

    fn lines(&self) -> [String; 2] {
        let processors =
            if self.processors == 1 { "1 processor".to_owned() } else { format!("{} processors", self.processors) };
        let trace = match (self.has_types, self.may_trace) {
            (false, _) => "trace: no (no BTF)",
            (true, false) => "trace: as root",
            (true, true) => "trace: yes",
        };
        let options = if self.may_see_all { "yes" } else { "as root" };
        let bluetooth = match self.adapters {
            0 => "no adapter (a model: taut air)".to_owned(),
            1 => "1 adapter".to_owned(),
            many => format!("{many} adapters"),
        };
        [
            format!("This host: Linux {}, {processors}; {trace};", self.kernel),
            format!("all programs' sockets: {options}; Bluetooth: {bluetooth}."),
        ]
    }
}

/// What to run for which question. The lines work as they stand, with a name in the place of each word in capitals: the
/// three after `taut serve` need it on HOST, on an address that others reach.
const QUESTIONS: [(&str, &str); 9] = [
    ("which connections of this host lose time now?", "taut watch"),
    ("why does this program wait, and for whom?", "taut trace --pid PID"),
    ("where did the time go in this capture or log?", "taut explain FILE"),
    ("what does this host lose? how fast is it?", "taut survey"),
    ("what would a Bluetooth LE link carry?", "taut air tune"),
    ("the other side of the next three, on HOST", "taut serve tcp://0.0.0.0:9100"),
    ("how long is a round trip to HOST?", "taut echo HOST"),
    ("which setting makes that faster, how surely?", "taut tune HOST"),
    ("do periodic messages leave and arrive on time?", "taut pace HOST"),
];

/// 15 lines of at most 80 columns, but for the name of an unusual kernel.
pub(crate) fn text() -> String {
    let mut text = "Data is late? taut names the layer that holds it, and proves what helps.\n\n".to_owned();
    for (question, line) in QUESTIONS {
        text.push_str(&format!("  {question:<48}{line}\n"));
    }
    text.push('\n');
    for line in Host::look().lines() {
        text.push_str(&format!("{line}\n"));
    }
    text.push_str("See it: taut demo --explain. Examples: taut help COMMAND. Missing: taut doctor.\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_host_allows_is_told_in_lines_that_fit() {
        let all = Host {
            kernel: "6.12.48+deb13-cloud-amd64".to_owned(),
            processors: 128,
            has_types: true,
            may_trace: true,
            may_see_all: true,
            adapters: 2,
        };
        let fits = |host: &Host| host.lines().iter().all(|line| line.len() <= 80);
        assert!(fits(&all) && all.lines()[0].ends_with("128 processors; trace: yes;"));
        assert!(all.lines()[1].contains(": yes; Bluetooth: 2 adapters."));
        let none = Host { may_trace: false, may_see_all: false, adapters: 0, processors: 1, ..all };
        assert!(fits(&none) && none.lines()[0].ends_with("1 processor; trace: as root;"));
        let old = Host { has_types: false, processors: 128, ..none };
        assert!(fits(&old) && old.lines()[0].ends_with("trace: no (no BTF);"));
    }

    #[test]
    fn it_has_fifteen_lines_of_eighty_columns() {
        let text = text();
        assert_eq!(text.lines().count(), 15, "{text}");
        // A kernel may have any name.
        let mut lines = text.lines().filter(|line| !line.starts_with("This host: "));
        assert!(lines.all(|line| line.chars().count() <= 80), "{text}");
    }
}

//! Names of the system calls that send, by their numbers on the architecture that this was built for.

const NAMES: [(u16, &str); 6] = if cfg!(target_arch = "x86_64") {
    [(1, "write"), (20, "writev"), (40, "sendfile"), (44, "sendto"), (46, "sendmsg"), (307, "sendmmsg")]
} else {
    // That of include/uapi/asm-generic/unistd.h.
    [(64, "write"), (66, "writev"), (71, "sendfile"), (206, "sendto"), (211, "sendmsg"), (269, "sendmmsg")]
};

/// Its name, or its number.
pub(super) fn name(number: u16) -> String {
    let known = NAMES.into_iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("call {number}"), |(_, name)| name.to_owned())
}

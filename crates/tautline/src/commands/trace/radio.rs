//! What is told of sockets of Bluetooth besides: how what passes below them was heard, and what is missing.

use std::time::Duration;

use taut_source::trace::Radio;

/// What was not seen below sockets of Bluetooth, and how exact the times of the rest are.
pub(super) fn unseen(radio: Radio, unnamed: usize) -> Vec<String> {
    let mut remarks = Vec::new();
    match radio {
        Radio::Heard { clock_error_ns, lost } => {
            remarks.push(format!(
                "Bluetooth packets have the kernel's wall-clock times; on the clock of the calls they are off by {:?} at \
                 most.",
                Duration::from_nanos(clock_error_ns)
            ));
            if lost > 0 {
                remarks.push(format!(
                    "{lost} Bluetooth packets found no room in the log's queue: who held what is not known around them."
                ));
            }
            if unnamed > 0 {
                remarks.push(format!(
                    "{unnamed} Bluetooth sockets could not be asked for their channel: not connected, closed too soon, \
                     or the right to borrow them is missing (CAP_SYS_PTRACE). Theirs is told by their calls alone."
                ));
            }
        }
        Radio::NotAllowed => remarks.push(
            "What passes between the kernel and its Bluetooth controllers was not heard (it takes CAP_NET_RAW): run it \
             as root, or give the program cap_net_raw and cap_sys_ptrace, too."
                .to_owned(),
        ),
        Radio::NoAdapter => remarks.push(
            "There was no Bluetooth adapter when the trace began, so what passes below the sockets was not heard; begin \
             it again now."
                .to_owned(),
        ),
        Radio::Refused(number) => remarks.push(format!(
            "What passes between the kernel and its Bluetooth controllers was not heard: {}.",
            std::io::Error::from_raw_os_error(number)
        )),
    }
    remarks
}

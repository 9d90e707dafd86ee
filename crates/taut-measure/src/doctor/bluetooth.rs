//! What of Bluetooth works here.

use std::fs;

use taut_link::bluetooth::{
    self, AdapterState, Controller, CreditRule, IntervalLimits, adapters, interval_in_words, state_of,
};
use taut_record::CheckRow;

use super::row::check;

/// What an LE link needs.
#[derive(Clone, Debug)]
pub struct Ble {
    /// What was looked at.
    pub rows: Vec<CheckRow>,
    /// Whether an adapter here can have a link: one that is off is switched on by who needs it.
    pub is_possible: bool,
}

const LINKS: &str = "every l2cap:// link";
const FIGURES: &str = "figures to be compared with those of another machine";

/// Looks at the kernel, the adapters and their controllers, and changes nothing.
pub fn ble() -> Ble {
    let mut rows: Vec<CheckRow> = board().into_iter().collect();
    let found = match adapters() {
        Ok(found) => found,
        Err(error) => {
            let remedy =
                "sudo modprobe bluetooth; if there is no such module: a kernel with CONFIG_BT and CONFIG_BT_LE";
            rows.push(check("Bluetooth of this kernel", LINKS, Err((error.to_string(), remedy))));
            return Ble { rows, is_possible: false };
        }
    };
    rows.push(check("Bluetooth of this kernel", LINKS, Ok("there".to_owned())));
    rows.push(ecred());
    let count = match found.len() {
        0 => Err(("none".to_owned(), NO_ADAPTER)),
        1 => Ok("1".to_owned()),
        many => Ok(many.to_string()),
    };
    rows.push(check("adapters", LINKS, count));
    let mut is_possible = false;
    for index in found {
        let state = state_of(index);
        is_possible |= state.as_ref().is_ok_and(|state| state.has_le && !is_blocked(index));
        let is_on = state.as_ref().is_ok_and(|state| state.has_le && state.is_on);
        rows.push(le(index, state));
        rows.extend(is_on.then(|| controller(index)).into_iter().flatten());
    }
    rows.extend(traps());
    Ble { rows, is_possible }
}

const NO_ADAPTER: &str = "plug one in (lsusb, dmesg | grep -i bluetooth); on a Raspberry Pi take `dtoverlay=disable-bt` out of \
    /boot/firmware/config.txt, install bluez-firmware and pi-bluetooth, and look at `systemctl status hciuart`; without hardware: taut air";

/// Which board it is, where the firmware says so: figures of radios are of a board.
fn board() -> Option<CheckRow> {
    let model = fs::read_to_string("/proc/device-tree/model").ok()?;
    Some(check("board", FIGURES, Ok(model.trim_end_matches('\0').trim().to_owned())))
}

/// How the kernel takes the newer way of opening channels.
fn ecred() -> CheckRow {
    let read = fs::read_to_string("/sys/module/bluetooth/parameters/enable_ecred");
    let found = match read.as_deref().map(str::trim) {
        Ok("Y") => "on: programs that ask for it get it; taut and l2cat ask for LE flow control",
        Ok(_) => "off, as kernels have it: channels are those of LE flow control, as taut and l2cat ask for",
        Err(_) => "not in this kernel: channels are those of LE flow control, as taut and l2cat ask for",
    };
    let needed_for =
        "programs with BT_MODE_EXT_FLOWCTL (echo Y | sudo tee /sys/module/bluetooth/parameters/enable_ecred)";
    check("enhanced credit based channels (ECRED)", needed_for, Ok(found.to_owned()))
}

/// Whether an adapter can have LE links now.
fn le(index: u16, state: taut_link::Result<AdapterState>) -> CheckRow {
    let what = format!("LE of hci{index}");
    let outcome = match state {
        Ok(AdapterState { has_le: false, address, .. }) => {
            Err((format!("{address} has BR/EDR alone"), "another adapter, with Bluetooth 4.0 or newer"))
        }
        Ok(AdapterState { is_on: true, address, .. }) => Ok(format!("{address} is on")),
        Ok(AdapterState { address, .. }) if is_blocked(index) => Err((
            format!("{address} is off, and blocked"),
            "sudo rfkill unblock bluetooth, then: bluetoothctl power on",
        )),
        Ok(AdapterState { address, .. }) => Err((
            format!("{address} is off"),
            "bluetoothctl power on; taut serve, echo, stream, … switch it on while they run, as root",
        )),
        Err(error) => Err((error.to_string(), "dmesg | grep -i bluetooth")),
    };
    check(&what, LINKS, outcome)
}

/// Whether rfkill(8) keeps the adapter off.
fn is_blocked(index: u16) -> bool {
    let switches = fs::read_dir(format!("/sys/class/bluetooth/hci{index}")).into_iter().flatten().flatten();
    let switches = switches.filter(|entry| entry.file_name().to_string_lossy().starts_with("rfkill"));
    let is_set = |path: std::path::PathBuf| fs::read_to_string(path).is_ok_and(|value| value.trim() == "1");
    switches.map(|entry| entry.path()).any(|path| is_set(path.join("soft")) || is_set(path.join("hard")))
}

/// What bounds the links of an adapter that is on.
fn controller(index: u16) -> Vec<CheckRow> {
    let what = |of: &str| format!("{of} of hci{index}");
    let controller = match Controller::read(index) {
        Ok(controller) => controller,
        Err(error) => {
            let remedy = match error {
                taut_link::Error::Unavailable(_) => "sudo taut doctor --ble, or setcap cap_net_raw+ep on taut",
                _ => "dmesg | grep -i bluetooth",
            };
            return vec![check(&what("controller"), FIGURES, Err((error.to_string(), remedy)))];
        }
    };
    let length = match controller.most_octets {
        Some(octets) => Ok(format!("up to {octets} bytes")),
        None => Err((
            "27 bytes: no data length extension".to_owned(),
            "another controller, with Bluetooth 4.2 or newer: a packet of paper 000 has 251 bytes",
        )),
    };
    let (bytes, count) = controller.buffers;
    let shared = if controller.shares_buffers { ", shared with BR/EDR" } else { "" };
    let phys = [("1M", true), ("2M", controller.has_2m), ("Coded", controller.has_coded)];
    let phys: Vec<&str> = phys.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect();
    vec![
        check(&what("controller"), FIGURES, Ok(named(&controller))),
        check(&what("LE packets"), "as many bytes in a PDU as in paper 000", length),
        check(&what("LE buffers"), FIGURES, Ok(format!("{count} of {bytes} bytes{shared}"))),
        check(&what("LE PHYs"), "?phy=2m of an endpoint, taut tune", Ok(phys.join(", "))),
    ]
}

/// Its version and its maker, of whom some are known by name (Assigned Numbers, section 7.1).
fn named(controller: &Controller) -> String {
    const VERSIONS: [&str; 10] = ["4.0", "4.1", "4.2", "5.0", "5.1", "5.2", "5.3", "5.4", "6.0", "6.1"];
    let version = usize::from(controller.version).checked_sub(6).and_then(|at| VERSIONS.get(at));
    let version =
        version.map_or_else(|| format!("HCI version {}", controller.version), |name| format!("Bluetooth {name}"));
    let maker = match controller.maker {
        2 => "Intel",
        10 => "Qualcomm (CSR)",
        15 => "Broadcom",
        29 => "Qualcomm",
        70 => "MediaTek",
        93 => "Realtek",
        305 => "Cypress",
        _ => return format!("{version}, company {}", controller.maker),
    };
    format!("{version}, {maker}")
}

/// The traps that this kernel's L2CAP sets, where it has any Bluetooth.
pub(super) fn traps() -> Vec<CheckRow> {
    let needed_for = "programs with sockets of L2CAP";
    let Ok(blocks) = bluetooth::receiving_blocks_others() else { return Vec::new() };
    let receiving = if blocks {
        Err((
            "a thread that waits in recv() of SOCK_SEQPACKET keeps the socket locked, and nothing arrives in it"
                .to_owned(),
            "wait with poll() and receive with MSG_DONTWAIT, or use SOCK_STREAM as taut does; a newer kernel has it mended",
        ))
    } else {
        Ok("a thread that waits in recv() leaves the socket to others".to_owned())
    };
    let sending = match bluetooth::sending_waits_all_the_same() {
        Some(true) => Err((
            "by its release this kernel has send() wait for the peer's credits, for up to 40 s, with MSG_DONTWAIT or O_NONBLOCK as well; what \
             arrives meanwhile is not read, and thrown away when the receive buffer is full"
                .to_owned(),
            "pass MSG_CONFIRM too, whose bit it looks at, or write only when poll() says so, as taut pipe and taut web do; Linux 5.18 has it \
             mended",
        )),
        Some(false) => Ok("returns EAGAIN while the peer gives no credit".to_owned()),
        None => Err(("the kernel's release is no number".to_owned(), "have a send() that has no credit timed")),
    };
    let credits = match CreditRule::of_this_kernel() {
        Some(CreditRule::Sdu) => Err((
            "for one SDU at a time: an SDU takes two connection intervals".to_owned(),
            "receive with a larger MTU (BT_RCVMTU) over shorter connection intervals, or run Linux 6.10 or newer; `taut tune`",
        )),
        Some(CreditRule::ReceiveBuffer) => Ok("for what fits into the receive buffer".to_owned()),
        None => Err(("/proc/kallsyms does not tell".to_owned(), "look at the grants: `taut stream` over the link")),
    };
    let mut rows = vec![
        check("blocking recv() of L2CAP", needed_for, receiving),
        check("non-blocking send() of L2CAP", "programs that send over l2cap:// from an event loop", sending),
        check("credits of L2CAP over LE", "streams over l2cap://", credits),
    ];
    rows.extend(adapters().unwrap_or_default().into_iter().map(interval_limits));
    rows
}

/// Whether an adapter's connections still have the interval that kernels ask for by themselves.
fn interval_limits(adapter: u16) -> CheckRow {
    let outcome = match IntervalLimits::read(adapter) {
        Ok(IntervalLimits::DEFAULT) => Err((
            "30 to 50 ms, as the kernel has it".to_owned(),
            "every exchange waits for the next interval: on both machines [LE] MinConnectionInterval=6, MaxConnectionInterval=6 in \
             /etc/bluetooth/main.conf (7.5 ms)",
        )),
        Ok(IntervalLimits { min, max }) if min > max => Err((format!("{min} to {max}"), "set them anew")),
        Ok(IntervalLimits { min, max }) => Ok(format!("{} to {}", interval_in_words(min), interval_in_words(max))),
        Err(error) => Err((error.to_string(), "run as root, with debugfs mounted")),
    };
    check(&format!("connection interval of hci{adapter}"), "round trips and streams over l2cap://", outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_named_by_version_and_maker() {
        let of = |version, maker| {
            let all = Controller {
                version,
                maker,
                most_octets: None,
                has_2m: false,
                has_coded: false,
                buffers: (27, 1),
                shares_buffers: false,
            };
            named(&all)
        };
        assert_eq!(of(9, 305), "Bluetooth 5.0, Cypress");
        assert_eq!(of(6, 15), "Bluetooth 4.0, Broadcom");
        assert_eq!(
            (of(5, 2), of(99, 4711)),
            ("HCI version 5, Intel".to_owned(), "HCI version 99, company 4711".to_owned())
        );
    }
}

//! Values as people write them. Each reader's error says what it takes.

use alloc::format;
use alloc::string::{String, ToString};

use crate::bredr::Rate;
use crate::controller::Completion;
use crate::host::Latency;
use crate::l2cap::CreditPolicy;
use crate::link::Pickup;
use crate::phy::Phy;
use crate::role::Role;
use crate::time::{MS, Nanos, SECOND, US};
use crate::transport::Transport;

/// What was expected.
pub(super) type Expected = String;

const TIME: &str = "a time such as 7.5ms, 150us or 2s";

pub(super) fn time(text: &str) -> Result<Nanos, Expected> {
    let error = || TIME.to_string();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = match unit {
        "" if number == "0" => 1,
        "ns" => 1,
        "us" => US,
        "ms" => MS,
        "s" => SECOND,
        _ => return Err(error()),
    };
    // Digits are scaled as integers: 7.5ms is 7,500,000 ns exactly.
    let number = number.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 10 || fraction.len() > 9 || !digits(whole) || !digits(fraction) {
        return Err(error());
    }
    let mut nanos = whole.parse::<Nanos>().map_err(|_| error())?.checked_mul(unit).ok_or_else(error)?;
    let mut place = unit;
    for digit in fraction.bytes() {
        place /= 10;
        nanos = nanos.checked_add(Nanos::from(digit - b'0') * place).ok_or_else(error)?;
    }
    Ok(nanos)
}

pub(super) fn print_time(nanos: Nanos) -> String {
    for (unit, name) in [(SECOND, "s"), (MS, "ms"), (US, "us")] {
        if nanos >= unit {
            let digits = format!("{}.{:09}", nanos / unit, (nanos % unit) * (SECOND / unit));
            return format!("{}{name}", digits.trim_end_matches('0').trim_end_matches('.'));
        }
    }
    if nanos == 0 { "0".to_string() } else { format!("{nanos}ns") }
}

pub(super) fn latency(text: &str) -> Result<Latency, Expected> {
    let error = |_| "a time such as 300us, or a range such as 300us..1.2ms".to_string();
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    let (low, high) = (time(low.trim()).map_err(error)?, time(high.trim()).map_err(error)?);
    if low > high || high > 100 * SECOND {
        return Err("a range whose first time is the shorter one, at most 100s".to_string());
    }
    Ok(Latency { low, high })
}

pub(super) fn print_latency(latency: Latency) -> String {
    if latency.low == latency.high {
        print_time(latency.low)
    } else {
        format!("{}..{}", print_time(latency.low), print_time(latency.high))
    }
}

pub(super) fn integer(text: &str, low: i64, high: i64) -> Result<i64, Expected> {
    text.parse()
        .ok()
        .filter(|number| (low..=high).contains(number))
        .ok_or_else(|| format!("a number from {low} to {high}"))
}

pub(super) fn bytes(text: &str, low: i64, high: i64) -> Result<i64, Expected> {
    integer(text.strip_suffix('B').unwrap_or(text), low, high)
        .map_err(|_| format!("a size in bytes from {low} to {high}"))
}

pub(super) fn probability(text: &str) -> Result<f64, Expected> {
    text.parse().ok().filter(|p| (0.0..=1.0).contains(p)).ok_or_else(|| "a probability from 0 to 1".to_string())
}

pub(super) fn boolean(text: &str) -> Result<bool, Expected> {
    match text {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        _ => Err("true or false".to_string()),
    }
}

pub(super) fn phy(text: &str) -> Result<Phy, Expected> {
    Phy::ALL.into_iter().find(|phy| phy.name() == text).ok_or_else(|| "1m, 2m, s2 or s8".to_string())
}

pub(super) fn rate(text: &str) -> Result<Rate, Expected> {
    Rate::ALL.into_iter().find(|rate| rate.name() == text).ok_or_else(|| "dm, dh, 2-dh or 3-dh".to_string())
}

pub(super) fn slots(text: &str) -> Result<u8, Expected> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        "5" => Ok(5),
        _ => Err("1, 3 or 5".to_string()),
    }
}

pub(super) fn role(text: &str) -> Result<Role, Expected> {
    let roles = [Role::Central, Role::Peripheral];
    roles.into_iter().find(|role| role.name() == text).ok_or_else(|| "central or peripheral".to_string())
}

/// `name(…)`: what is inside.
fn call<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')')
}

pub(super) fn completion(text: &str) -> Result<Completion, Expected> {
    let error = || "each, batch(N) or next-event".to_string();
    match text {
        "each" => Ok(Completion::Each),
        "next-event" => Ok(Completion::NextEvent),
        _ => integer(call(text, "batch").ok_or_else(error)?, 1, 1000)
            .map(|n| Completion::Batch(n as u16))
            .map_err(|_| error()),
    }
}

pub(super) fn print_completion(completion: Completion) -> String {
    match completion {
        Completion::Each => "each".to_string(),
        Completion::Batch(count) => format!("batch({count})"),
        Completion::NextEvent => "next-event".to_string(),
    }
}

pub(super) fn credits(text: &str) -> Result<CreditPolicy, Expected> {
    let error = || "linux-old, linux-recvbuf, window(N) or batch(WINDOW,N)".to_string();
    match text {
        "linux-old" => return Ok(CreditPolicy::LinuxOld),
        "linux-recvbuf" => return Ok(CreditPolicy::LinuxRecvbuf),
        _ => {}
    }
    if let Some(window) = call(text, "window") {
        return integer(window, 1, 65_535).map(|window| CreditPolicy::Window(window as u16)).map_err(|_| error());
    }
    let (window, batch) = call(text, "batch").and_then(|inside| inside.split_once(',')).ok_or_else(error)?;
    let window = integer(window.trim(), 1, 65_535).map_err(|_| error())?;
    let batch = integer(batch.trim(), 1, window).map_err(|_| error())?;
    Ok(CreditPolicy::Batch { window: window as u16, batch: batch as u16 })
}

pub(super) fn print_credits(credits: CreditPolicy) -> String {
    match credits {
        CreditPolicy::LinuxOld => "linux-old".to_string(),
        CreditPolicy::LinuxRecvbuf => "linux-recvbuf".to_string(),
        CreditPolicy::Window(window) => format!("window({window})"),
        CreditPolicy::Batch { window, batch } => format!("batch({window},{batch})"),
    }
}

pub(super) fn transport(text: &str) -> Result<Transport, Expected> {
    let error = || "none, uart(BAUD) or usb(TIME)".to_string();
    if text == "none" {
        return Ok(Transport::None);
    }
    if let Some(baud) = call(text, "uart") {
        return integer(baud, 1_200, 100_000_000)
            .map(|baud| Transport::Uart { baud: baud as u32 })
            .map_err(|_| error());
    }
    let delay = time(call(text, "usb").ok_or_else(error)?).map_err(|_| error())?;
    Ok(Transport::Usb { delay })
}

pub(super) fn print_transport(transport: Transport) -> String {
    match transport {
        Transport::None => "none".to_string(),
        Transport::Uart { baud } => format!("uart({baud})"),
        Transport::Usb { delay } => format!("usb({})", print_time(delay)),
    }
}

/// A number, or `none`.
pub(super) fn optional<T>(text: &str, read: impl FnOnce(&str) -> Result<T, Expected>) -> Result<Option<T>, Expected> {
    if text == "none" { Ok(None) } else { read(text).map(Some).map_err(|expected| format!("{expected}, or none")) }
}

pub(super) fn print_optional<T>(value: Option<T>, print: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "none".to_string(), print)
}

pub(super) fn pickup(text: &str) -> Result<Pickup, Expected> {
    match text {
        "at-once" => Ok(Pickup::AtOnce),
        "after-ack" => Ok(Pickup::AfterAck),
        _ => Err("at-once or after-ack".to_string()),
    }
}

pub(super) fn print_pickup(pickup: Pickup) -> String {
    match pickup {
        Pickup::AtOnce => "at-once".to_string(),
        Pickup::AfterAck => "after-ack".to_string(),
    }
}

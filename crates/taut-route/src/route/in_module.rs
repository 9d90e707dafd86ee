//! A route as the kernel module takes it.

use std::net::SocketAddr;
use std::path::Path;

use super::{Access, Bias, Edge, GpioLine, Route, Source, Target, Wish};
use crate::module::abi::{self, End, Request};
use crate::module::{ModulePlace, ModuleSpec, input_name};

/// Places that may come into question, the better one first; or what the route lacks for the module. On a real-time
/// kernel (PREEMPT_RT) all drivers can sleep.
pub(super) fn places(route: &Route, is_realtime: bool) -> Result<Vec<ModulePlace>, Vec<String>> {
    module_spec(route)?;
    let sends = route.sinks.iter().any(|sink| matches!(sink.target, Target::Udp(_)));
    let sleeps = sends || is_realtime;
    match route.wish {
        Wish::HardIrq if sends => Err(vec!["sinks that can't sleep: sending UDP needs a thread".to_owned()]),
        Wish::HardIrq if is_realtime => {
            Err(vec!["a kernel without PREEMPT_RT, on which all drivers can sleep; write kthread".to_owned()])
        }
        Wish::HardIrq => Ok(vec![ModulePlace::HardIrq]),
        Wish::Kthread => Ok(vec![ModulePlace::Thread]),
        _ if sleeps => Ok(vec![ModulePlace::Thread]),
        _ => Ok(vec![ModulePlace::HardIrq, ModulePlace::Thread]),
    }
}

/// The route in the module's words, or what it lacks for that.
pub(crate) fn module_spec(route: &Route) -> Result<ModuleSpec, Vec<String>> {
    let mut lacks = Vec::new();
    if route.sinks.len() > abi::MOST_SINKS {
        lacks.push(format!("{} sinks at most", abi::MOST_SINKS));
    }
    let source = source(&route.source).map_err(|lack| lacks.push(lack)).unwrap_or(End::new(0));
    let mut sinks = [End::new(0); abi::MOST_SINKS];
    for (place, sink) in sinks.iter_mut().zip(&route.sinks) {
        match target(&sink.target) {
            // What is sent of an event without a datagram is always an output.
            Ok(end) => *place = End { output: sink.output.unwrap_or_default() as u32, ..end },
            Err(lack) => lacks.push(lack),
        }
    }
    if !lacks.is_empty() {
        return Err(lacks);
    }
    let leds = route.sinks.iter().enumerate().filter_map(|(index, sink)| match &sink.target {
        Target::Led(name) => Some((index, name.clone())),
        _ => None,
    });
    let request = Request {
        abi: abi::ABI,
        place: abi::AUTO,
        program: -1,
        condition: abi::PROGRAM,
        most_per_second: 0,
        mask_ms: 0,
        sinks: route.sinks.len() as u32,
        id: 0,
        at_fault: 0,
        log: route.log.is_some().into(),
        source,
        sink: sinks,
    };
    Ok(ModuleSpec {
        request,
        source: route.source.to_string(),
        sinks: route.sinks.iter().map(|sink| sink.target.to_string()).collect(),
        leds: leds.collect(),
    })
}

fn source(source: &Source) -> Result<End, String> {
    match source {
        Source::Gpio(edges) => {
            if edges.debounce.is_some() {
                return Err("a line without debounce=…; write debounce(…) in the condition".to_owned());
            }
            let mut end = line(&edges.line)?;
            end.flags |= match edges.edge {
                Edge::Both => abi::RISING | abi::FALLING,
                Edge::Rising => abi::RISING,
                Edge::Falling => abi::FALLING,
            };
            Ok(end)
        }
        Source::Input(events) => {
            let node = events.device.starts_with("/dev/").then(|| Path::new(&events.device));
            let name = match node {
                Some(node) => input_name(node).ok_or_else(|| format!("an input device at {}", node.display()))?,
                None => events.device.clone(),
            };
            let number = u32::from(events.kind) << 16 | u32::from(events.code);
            Ok(End { number, name: bytes(&name)?, ..End::new(abi::INPUT) })
        }
        other => Err(format!("a source that the module has: gpio: or input:, not {other}")),
    }
}

fn target(target: &Target) -> Result<End, String> {
    match target {
        Target::Gpio(to) => line(to),
        Target::Led(_) => Ok(End::new(abi::LED)),
        Target::Udp(to) => Ok(End { name: address(*to), ..End::new(abi::UDP) }),
        other => Err(format!("a sink that the module has: gpio:, led: or udp://, not {other}")),
    }
}

fn line(line: &GpioLine) -> Result<End, String> {
    if line.by != Access::Auto {
        return Err("a line without by=…, which asks for an interface of user space".to_owned());
    }
    let bias = match line.bias {
        None => 0,
        Some(Bias::Off) => abi::PULL_OFF,
        Some(Bias::PullUp) => abi::PULL_UP,
        Some(Bias::PullDown) => abi::PULL_DOWN,
    };
    let flags = bias | if line.active_low { abi::ACTIVE_LOW } else { 0 };
    Ok(End { flags, number: line.offset, name: bytes(&line.chip)?, ..End::new(abi::GPIO) })
}

/// A name with the zero byte after it.
fn bytes(name: &str) -> Result<[u8; abi::NAME_BYTES], String> {
    let mut bytes = [0; abi::NAME_BYTES];
    let place = bytes[..abi::NAME_BYTES - 1].get_mut(..name.len());
    place.ok_or_else(|| format!("a name of {} bytes at most", abi::NAME_BYTES - 1))?.copy_from_slice(name.as_bytes());
    Ok(bytes)
}

/// `address` of `struct taut_path_end`.
fn address(to: SocketAddr) -> [u8; abi::NAME_BYTES] {
    let mut bytes = [0; abi::NAME_BYTES];
    let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&to.port().to_be_bytes());
    match to {
        SocketAddr::V4(to) => bytes[8..12].copy_from_slice(&to.ip().octets()),
        SocketAddr::V6(to) => {
            bytes[4..8].copy_from_slice(&to.scope_id().to_ne_bytes());
            bytes[8..24].copy_from_slice(&to.ip().octets());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::{Declaration, SinkDeclaration, parse_file};

    fn route(from: &str, to: &[&str]) -> Route {
        let sink = |sink: &&str| SinkDeclaration { sink: (*sink).to_owned(), send: None };
        let text = format!("[[route]]\nname = 'r'\nfrom = '{from}'\n");
        let mut declaration: Declaration = parse_file(&text).unwrap().remove(0);
        declaration.to = to.iter().map(sink).collect();
        Route::compile(&declaration).unwrap()
    }

    #[test]
    fn a_route_is_told_in_the_modules_words() {
        let route = route(
            "gpio:chip/17?edge=falling&active=low&bias=pull-up",
            &["gpio:chip/27", "led:a", "udp://[fe80::1%3]:9000", "udp://10.1.2.3:258"],
        );
        let request = module_spec(&route).unwrap_or_else(|lacks| panic!("{lacks:?}")).request;
        assert_eq!(request.source.flags, abi::FALLING | abi::ACTIVE_LOW | abi::PULL_UP);
        assert_eq!((request.source.number, &request.source.name[..5]), (17, &b"chip\0"[..]));
        assert_eq!((request.sinks, request.sink[0].number, request.sink[1].kind), (4, 27, abi::LED));
        assert_eq!(request.sink[2].name[4..8], 3_u32.to_ne_bytes());
        assert_eq!(request.sink[2].name[8..10], [0xfe, 0x80]);
        assert_eq!(request.sink[3].name[2..4], [1, 2]);
        assert_eq!(request.sink[3].name[8..12], [10, 1, 2, 3]);
    }

    #[test]
    fn what_it_lacks_is_told() {
        let lack = |from: &str, to: &str| places(&route(from, &[to]), false).unwrap_err().join("; ");
        assert!(lack("gpio:c/1?debounce=5ms", "led:a").contains("debounce(…) in the condition"));
        assert!(lack("gpio:c/1", "file:/tmp/x").contains("not file:/tmp/x"));
        assert!(lack("gpio:c/1?by=cdev", "led:a").contains("by=…"));
        assert!(lack(&format!("gpio:{}/1", "c".repeat(64)), "led:a").contains("63 bytes at most"));
        assert!(lack("input:/dev/input/none/key/1", "led:a").contains("an input device at"));
        let both = [ModulePlace::HardIrq, ModulePlace::Thread];
        assert_eq!(places(&route("gpio:c/1", &["led:a"]), false).unwrap(), both);
        assert_eq!(places(&route("gpio:c/1", &["led:a", "udp://1.2.3.4:5"]), false).unwrap(), [ModulePlace::Thread]);
        assert_eq!(places(&route("gpio:c/1", &["led:a"]), true).unwrap(), [ModulePlace::Thread]);
        let mut asked = route("gpio:c/1", &["led:a"]);
        asked.wish = Wish::HardIrq;
        assert!(places(&asked, true).unwrap_err()[0].contains("PREEMPT_RT"));
    }
}

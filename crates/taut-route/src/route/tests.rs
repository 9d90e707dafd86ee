use proptest::prelude::*;

use super::*;

fn compile(text: &str) -> std::result::Result<Vec<Route>, String> {
    parse_file(text).and_then(|declarations| Route::compile_all(&declarations)).map_err(|error| error.to_string())
}

const FILE: &str = r#"
[[route]]
name = "fire"
from = "udp://10.0.0.1:9000"
when = "temperature > 80 && limit(true, 10, 1s)"
fields = { temperature = "i16be@8" }
to = ["reply", { sink = "udp://10.0.0.2:9000", send = "temperature" }]
log = "/tmp/log"

[[route]]
name = "tick"
from = "timer:100ms"
to = ["file:-"]
place = "user"
"#;

#[test]
fn a_file_is_read_in_full() {
    let routes = compile(FILE).unwrap();
    assert_eq!(routes.len(), 2);
    assert_eq!(routes[0].sinks[0].output, None);
    assert_eq!(routes[0].sinks[1].output, Some(0));
    // Its `value` would need no more than the temperature does.
    assert_eq!((routes[0].logged, routes[0].program.payload_bytes), (Some(1), 10));
    assert_eq!((routes[1].sinks[0].output, routes[1].wish), (Some(0), Wish::User));
}

#[test]
fn a_broker_is_sent_the_datagram_or_a_number() {
    let output = |from: &str, to: &str| {
        let text = format!("[[route]]\nname = 'a'\nfrom = '{from}'\nto = [{to}]");
        compile(&text).unwrap()[0].sinks[0].output
    };
    assert_eq!(output("udp://127.0.0.1:9", "'mqtt://h/t'"), None);
    assert_eq!(output("udp://127.0.0.1:9", "{ sink = 'mqtt://h/t', send = 'value' }"), Some(0));
    assert_eq!(output("timer:1s", "'nats://h/t'"), Some(0));
}

#[test]
fn what_is_wrong_is_told() {
    for (text, expected) in [
        ("", "missing field `route`"),
        ("[[route]]\nname = 1", "invalid type"),
        ("[[route]]\nname = 'a'\nfrom = 'timer:1s'\nwhen = 'true'\nfoo = 1", "unknown field `foo`"),
        ("[[route]]\nname = 'a b'\nfrom = 'timer:1s'", "can't name a route"),
        ("[[route]]\nname = 'a'\nfrom = 'timer:1'", "write a period"),
        ("[[route]]\nname = 'a'\nfrom = 'udp://localhost:1'", "write an IP address and a port"),
        ("[[route]]\nname = 'a'\nfrom = 'timer:1s'\nwhen = 'value >'", "route a: when: column 8: expected a number"),
        ("[[route]]\nname = 'a'\nfrom = 'timer:1s'\nto = ['reply']", "`reply` answers datagrams"),
        ("[[route]]\nname = 'a'\nfrom = 'timer:1s'\nto = [{ sink = 'file:-', send = 'x' }]", "send `x`: column 1"),
        ("[[route]]\nname = 'a'\nfrom = 'timer:1s'\nto = [1]", "expected a sink"),
        ("[[route]]\nname = 'a'\nfrom = 'timer:1s'\nfields = { x = 'u8@0' }", "no other fields"),
        ("[[route]]\nname = 'a'\nfrom = 'udp://1.2.3.4:5'\nfields = { x = 'u9@0' }", "is no field"),
        ("[[route]]\nname = 'a'\nfrom = 'gpio:x'", "from: `gpio:x`: column 7: expected the number of a line"),
        ("[[route]]\nname = 'a'\nfrom = 'gpio:/1'", "column 6: expected the label of a GPIO chip"),
        (
            "[[route]]\nname = 'a'\nfrom = 'gpio:x/1?edge=up'",
            "column 15: expected both or rising or falling, found `up`",
        ),
        ("[[route]]\nname = 'a'\nfrom = 'gpio:x/1?edge'", "column 10: expected an option such as"),
        ("[[route]]\nname = 'a'\nfrom = 'gpio:x/1?debounce=5'", "column 19: expected a time from 1us to 1s"),
        ("[[route]]\nname = 'a'\nfrom = 'gpio:ä/1?edge=both&edge=both'", "column 20: expected `edge` once only"),
        (
            "[[route]]\nname = 'a'\nfrom = 'timer:1s'\nto = ['gpio:x/1?edge=both']",
            "to: `gpio:x/1?edge=both`: column 10",
        ),
        ("[[route]]\nname = 'a'\nfrom = 'input:x/key'", "column 7: expected device, type and code"),
        ("[[route]]\nname = 'a'\nfrom = 'input:x/kay/1'", "column 9: expected a type of event"),
        ("[[route]]\nname = 'a'\nfrom = 'input:x/key/0x300'", "column 13: expected the number of a code"),
        ("[[route]]\nname = 'a'\nfrom = 'timer:1s'\nto = ['led:../x']", "column 5: expected the name of an LED"),
        ("[[route]]\nname = 'a'\nfrom = 'tty:/dev/x?baud=9'", "column 17: expected bits per second"),
        (
            "[[route]]\nname = 'a'\nfrom = 'gpio:x/1'\n[[route]]\nname = 'b'\nfrom = 'gpio:x/1?edge=rising'",
            "routes a and b both take from gpio:x/1",
        ),
        ("[[route]]\nname = 'a'\nfrom = 'timer:1s'\nto = ['udp://0.0.0.0:1']", "nothing can be sent there"),
        ("[[route]]\nname = 'a'\nfrom = 'mqtt://h/t'", "taut pipe 'mqtt://h/t' stdio: --framing line"),
        ("[[route]]\nname = 'a'\nfrom = 'timer:1s'\nto = ['mqtt:h/t']", "is no sink: write"),
        ("[[route]]\nname = 'a'\nfrom = 'timer:1s'\nto = ['mqtt://h']", "the topic is missing"),
        ("[[route]]\nname = 'a'\nfrom = 'timer:1s'\nto = ['nats://h/t?session=x']", "no setting session=x"),
        (
            "[[route]]\nname = 'a'\nfrom = 'timer:1s'\n[[route]]\nname = 'a'\nfrom = 'timer:2s'",
            "two routes are named a",
        ),
        (
            "[[route]]\nname = 'a'\nfrom = 'unix:/x'\n[[route]]\nname = 'b'\nfrom = 'unix:/x'",
            "routes a and b both take from unix:/x",
        ),
    ] {
        let error = compile(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn what_the_kernel_path_lacks_is_told() {
    let host = Host::ask();
    let plan = |to: &str, from: &str| {
        let text = format!("[[route]]\nname = 'a'\nfrom = '{from}'\nto = {to}");
        host.plan(&compile(&text).unwrap()[0])
    };
    let lacking = plan("['file:-']", "timer:1s");
    assert!(lacking.places.is_empty() && lacking.lacks.len() >= 2, "{lacking:?}");
    assert!(plan("['reply']", "udp://0.0.0.0:9").lacks[0].contains("an address of one device"));
    assert!(plan("['reply']", "udp://192.0.2.77:9").lacks[0].contains("a device with the address"));
    let mixed = plan("['reply', 'udp://127.0.0.1:9']", "udp://[::1]:9").lacks.join("; ");
    assert!(mixed.contains("one version of IP: the source is IPv6, and udp://127.0.0.1:9 IPv4"), "{mixed}");
    assert!(plan("['reply']", "udp://[fe80::1]:9").lacks[0].contains("[fe80::1%NUMBER]"));
    let broker = plan("['mqtt://h/t']", "udp://127.0.0.1:9");
    assert!(broker.places.is_empty() && broker.lacks.join("; ").contains("not mqtt://h:1883/t"), "{broker:?}");
}

#[test]
fn addresses_are_printed_as_they_are_read() {
    for text in [
        "udp://1.2.3.4:5",
        "udp://[::1]:5",
        "tcp://1.2.3.4:5",
        "unix:/a",
        "unix-dgram:/a",
        "lines:-",
        "tty:/dev/ttyS0",
        "tty:/dev/ttyS0?baud=9600",
        "gpio:a/b c/17?edge=both",
        "gpio:a/17?edge=falling&debounce=5000us&active=low&bias=pull-up&by=cdev",
        "input:a/b c/key/28",
        "input:/dev/input/event3/21/0",
        "l2cap://any/129?adapter=hci1",
        "rfcomm://any/3",
    ] {
        assert_eq!(text.parse::<Source>().unwrap().to_string(), text);
    }
    assert_eq!("timer:2ms".parse::<Source>().unwrap().to_string(), "timer:2000us");
    for text in [
        "reply",
        "udp://1.2.3.4:5",
        "tcp://[::1]:5",
        "unix:/a",
        "unix-dgram:/a",
        "file:-",
        "gpio:a/1?active=low&by=sysfs",
        "led:a::b",
        "tty:/a",
        "mqtt://h:1883/a/b?qos=1&v=5&buffer=5",
        "mqtts://h:8883/a?ca=/c",
        "nats://h:4222/a.b?stream=S&create=file",
    ] {
        assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
    }
    for text in [
        "",
        "gpio",
        "gpio:",
        "gpio:a/+1",
        "gpio:a/4294967296",
        "input:",
        "led:",
        "tty:",
        "udp:1.2.3.4:5",
        "timer:1d",
        "timer:99999999999999999999ms",
        "unix:",
        "timer:1us",
    ] {
        assert!(text.parse::<Source>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_file_or_an_error(text in "\\PC{0,60}") {
        let _ = compile(&text);
        let _ = compile(&format!("[[route]]\nname = 'a'\nfrom = '{text}'\nwhen = '{text}'"));
    }
}

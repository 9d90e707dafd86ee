//! Adapters that bluetoothd has: ours works beside it and leaves them as it had them.

mod support;

use std::fs;
use std::path::Path;

use serde_json::Value;
use support::{Lab, note_skipped};

/// The programs of a system with bluetoothd.
const PROGRAMS: [&str; 3] = ["/usr/libexec/bluetooth/bluetoothd", "/usr/bin/dbus-daemon", "/usr/bin/dbus-send"];

/// A bus for one user who may do everything.
const BUS: &str = r#"<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
  </policy>
</busconfig>
"#;

/// It powers every adapter by itself, as desktops have it.
const CONFIGURATION: &str = "[Policy]\nAutoEnable=true\n";

const SCRIPT: &str = r#"
await() { until grep -q "$1" "$2" 2>/dev/null; do sleep 0.1; done; }
state() {
    for adapter in hci0 hci1; do
        dbus-send --system --print-reply --dest=org.bluez /org/bluez/$adapter \
            org.freedesktop.DBus.Properties.GetAll string:org.bluez.Adapter1 | grep -v '^method return'
    done
}
# Once bluetoothd has worked in what the kernel told it, a second changes nothing.
settled() {
    now=; then=
    until [ "$now" ] && [ "$now" = "$then" ]; do then=$now; sleep 1; now=$(state); done
    echo "$now"
}
mkdir -p /run/dbus /var/lib/bluetooth
taut air attach two-nodes --json >/tmp/radio &
await adapters /tmp/radio
dbus-daemon --config-file=/root/bus.conf --fork || exit 10
bluetoothd -n >/tmp/bluetoothd 2>&1 & daemon=$!
until [ "$(state 2>/dev/null | grep -A 1 '"Powered"' | grep -c true)" = 2 ]; do
    kill -0 $daemon || { cat /tmp/bluetoothd; exit 11; }
    sleep 0.2
done
settled >$OUT/before
taut serve 'l2cap://any/129?adapter=hci1' >/tmp/serve & serve=$!
await listening /tmp/serve
taut echo 'l2cap://00:AA:01:01:00:00/129?adapter=hci0' --count 20 --rounds 2 --json >$OUT/echo.json || exit 12
kill -INT $serve
wait $serve || exit 13
sleep 1
settled >$OUT/after
kill -0 $daemon
"#;

#[test]
fn adapters_of_bluetoothd_carry_and_stay_as_they_were() {
    let test = "adapters_of_bluetoothd_carry_and_stay_as_they_were";
    let Some(lab) = Lab::ready(test) else { return };
    let mut command = lab.command(&["run", "--kernel", "6.12", "--module", "hci_vhci", "--timeout", "15m"]);
    for program in PROGRAMS {
        if !Path::new(program).exists() {
            note_skipped(test, &format!("{program} is missing: apt-get install bluez dbus"));
            return;
        }
        command.args(["--file", program]);
    }
    let (bus, configuration) = (lab.file("bus.conf", BUS.as_bytes()), lab.file("main.conf", CONFIGURATION.as_bytes()));
    command.arg("--file").arg(bus);
    command.arg("--file").arg(format!("{}:/etc/bluetooth/main.conf", configuration.display()));
    let output = command.arg("--out").arg(lab.path("out")).args(["--", "sh", "-c", SCRIPT]).output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let read = |name: &str| fs::read_to_string(lab.path(&format!("out/{name}"))).unwrap();
    let echo: Value = serde_json::from_str(&read("echo.json")).unwrap();
    let echo = &echo["results"][0];
    assert_eq!((&echo["sent"], &echo["lost"]), (&20.into(), &0.into()), "{echo}");
    let before = read("before");
    assert_eq!(before.matches("\"Address\"").count(), 2, "{before}");
    let after = read("after");
    let differ = before.lines().zip(after.lines()).filter(|(before, after)| before != after);
    assert!(before == after, "before and after: {:#?}\n{before}", differ.collect::<Vec<_>>());
}

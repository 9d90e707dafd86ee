//! What a route does.

use std::fs;
use std::net::UdpSocket;
use std::time::Duration;

use crate::keyboard::Keyboard;
use crate::{PERIOD, chip, counters, soonest, start, status};

pub(crate) fn edges_reach_the_output_in_hard_irq_and_in_a_thread() {
    let chip = chip();
    for (place, runs) in [("auto", soonest()), ("kthread", "kthread"), ("kernel", soonest())] {
        let engine =
            start("gpio:taut-gpio-sim/3", "value == 0 && count > 2", &["gpio:taut-gpio-sim/5"], place).unwrap();
        assert_eq!(status(&engine).runs, runs);
        let stamps = chip.run(3, 10, PERIOD).unwrap();
        let counters = counters(&engine, 10);
        assert_eq!([counters.events, counters.passed, counters.dropped, counters.lost], [10, 4, 6, 0], "{runs}");
        let set: Vec<bool> = stamps.iter().map(|stamp| stamp.output_ns.is_some()).collect();
        assert_eq!(set, [false, false, true, false, true, false, true, false, true, false], "{runs}");
        assert_eq!(counters.latency.at_least_ns.iter().map(|(_, count)| count).sum::<u64>(), 4);
        drop(engine);
        // Nobody takes them any more.
        assert!(chip.run(3, 4, PERIOD).unwrap().iter().all(|stamp| stamp.output_ns.is_none()));
    }
}

pub(crate) fn only_the_edges_asked_for_are_events() {
    let chip = chip();
    for (edge, passed) in [("rising", 3), ("rising&active=low", 4), ("falling", 0)] {
        let from = format!("gpio:taut-gpio-sim/3?edge={edge}");
        let engine = start(&from, "value == 1", &["gpio:taut-gpio-sim/5"], "kernel").unwrap();
        chip.run(3, 7, PERIOD).unwrap();
        assert_eq!(counters(&engine, passed).passed, passed, "{edge}");
    }
}

pub(crate) fn a_chip_that_sleeps_and_udp_take_the_thread() {
    let chip = chip();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let to = format!("udp://{}", receiver.local_addr().unwrap());
    let sinks = ["gpio:taut-gpio-sim-slow/1", &to, "led:taut-sim", "gpio:taut-gpio-sim/6"];
    let engine = start("gpio:taut-gpio-sim/3", "value == 1", &sinks, "auto").unwrap();
    assert_eq!(status(&engine).runs, "kthread");
    chip.run(3, 6, PERIOD).unwrap();
    for _ in 0..3 {
        let mut datagram = [0; 16];
        assert_eq!(receiver.recv(&mut datagram).unwrap(), 8);
        assert_eq!(datagram[..8], 1_i64.to_be_bytes());
    }
    let counters = counters(&engine, 6);
    assert_eq!([counters.passed, counters.lost], [3, 0]);
    let refused = start("gpio:taut-gpio-sim/4", "true", &["gpio:taut-gpio-sim-slow/2"], "hardirq").unwrap_err();
    assert!(refused.to_string().contains("can sleep"), "{refused}");
}

pub(crate) fn an_led_follows_and_is_given_back() {
    let chip = chip();
    let trigger = "/sys/class/leds/taut-sim/trigger";
    let all = fs::read_to_string(trigger).unwrap();
    let before = all.split_whitespace().find(|name| name.starts_with("kbd-")).unwrap();
    fs::write(trigger, before).unwrap();
    let engine = start("gpio:taut-gpio-sim/3", "true", &["led:taut-sim"], "kernel").unwrap();
    assert_eq!(status(&engine).runs, soonest());
    assert!(fs::read_to_string(trigger).unwrap().contains("[taut-path-"));
    chip.run(3, 8, PERIOD).unwrap();
    assert_eq!(counters(&engine, 8).passed, 8);
    let counts = fs::read_to_string("/sys/kernel/debug/taut_gpio_sim/counts").unwrap();
    assert!(counts.contains("led 8\n"), "{counts}");
    drop(engine);
    assert!(fs::read_to_string(trigger).unwrap().contains(&format!("[{before}]")));
    // The LED goes away under the route, which goes on.
    let engine = start("gpio:taut-gpio-sim/3", "true", &["led:taut-sim"], "kernel").unwrap();
    fs::write("/sys/kernel/debug/taut_gpio_sim/led", "0").unwrap();
    chip.run(3, 8, PERIOD).unwrap();
    assert_eq!(counters(&engine, 8).passed, 8);
    fs::write("/sys/kernel/debug/taut_gpio_sim/led", "1").unwrap();
    let again = start("gpio:taut-gpio-sim/4", "true", &["led:taut-sim"], "kernel").unwrap();
    drop((engine, again));
    assert!(fs::read_to_string(trigger).unwrap().contains("[none]"));
}

pub(crate) fn a_key_reaches_the_output() {
    let keys = Keyboard::new("taut keys");
    let engine = start("input:taut keys/key/30", "changed(value)", &["gpio:taut-gpio-sim/5"], "kernel").unwrap();
    assert_eq!(status(&engine).runs, soonest());
    for (code, value) in [(30, 1), (30, 0), (31, 1), (31, 0), (30, 1), (30, 0)] {
        keys.press(code, value);
    }
    let counters = counters(&engine, 4);
    assert_eq!([counters.events, counters.passed], [4, 4]);
    // Unplugged and plugged in again.
    drop(keys);
    let keys = Keyboard::new("taut keys");
    keys.press(30, 1);
    assert_eq!(self::counters(&engine, 5).events, 5);
}

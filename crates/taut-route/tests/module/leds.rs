//! LEDs of input devices, whose core lights them under the lock that it holds when it tells of a key.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use crate::keyboard::Keyboard;
use crate::{counters, soonest, start, status};

const PLACES: [&str; 3] = ["auto", "kernel", "kthread"];

/// Waits until the LED is lit or dark.
pub(crate) fn assert_becomes(led: &str, lit: bool, what: &str) {
    let path = format!("/sys/class/leds/{led}/brightness");
    let begin = Instant::now();
    while (fs::read_to_string(&path).unwrap() != "0\n") != lit {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}: {led} does not become {lit}");
        thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn a_key_lights_the_led_of_its_own_keyboard() {
    let keys = Keyboard::new("taut own");
    for place in PLACES {
        let engine = start("input:taut own/key/30", "true", &[&format!("led:{}", keys.led())], place).unwrap();
        let runs = if place == "kthread" { place } else { soonest() };
        assert_eq!(status(&engine).runs, runs);
        for value in [1, 0, 1, 0] {
            keys.press(30, value);
            assert_becomes(keys.led(), value == 1, place);
        }
        assert_eq!(counters(&engine, 4).passed, 4, "{place}");
    }
}

pub(crate) fn keys_light_leds_of_other_keyboards_crosswise() {
    let keyboards = [Keyboard::new("taut left"), Keyboard::new("taut right")];
    let [left, right] = &keyboards;
    for place in PLACES {
        let to_right = start("input:taut left/key/30", "true", &[&format!("led:{}", right.led())], place).unwrap();
        let to_left = start("input:taut right/key/30", "true", &[&format!("led:{}", left.led())], place).unwrap();
        // On two processors each meets the other in the midst of it.
        thread::scope(|scope| {
            for keys in &keyboards {
                scope.spawn(|| {
                    for turn in 0..2000 {
                        keys.press(30, 1 - turn % 2);
                    }
                });
            }
        });
        for engine in [&to_right, &to_left] {
            let counters = counters(engine, 2000);
            assert_eq!(counters.passed + counters.lost, 2000, "{place}: {counters:?}");
        }
        // A storm may have masked them for a while.
        thread::sleep(Duration::from_millis(100));
        for (keys, other) in [(left, right), (right, left)] {
            for value in [1, 0] {
                keys.press(30, value);
                assert_becomes(other.led(), value == 1, place);
            }
        }
    }
}

//! Routes over drivers of the kernel's own: LEDs of leds-gpio, and lines of gpio-sim.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::leds::assert_becomes;
use crate::{Defer, PERIOD, chip, counters, soonest, start, status};

/// LEDs on lines of the chips: one that is set at once, and one that is set in a work, since its chip can sleep.
pub(crate) fn leds_on_lines_follow() {
    let chip = chip();
    let there = |there: &str| fs::write("/sys/kernel/debug/taut_gpio_sim/leds", there).unwrap();
    there("1");
    let _gone = Defer(|| there("0"));
    let leds = ["taut-sim-line", "taut-sim-slow-line"];
    let sinks = leds.map(|led| format!("led:{led}"));
    for place in ["auto", "kthread"] {
        let sinks: Vec<&str> = sinks.iter().map(String::as_str).collect();
        let engine = start("gpio:taut-gpio-sim/3", "true", &sinks, place).unwrap();
        // An LED's driver that sleeps keeps nobody from the interrupt: the core defers it.
        assert_eq!(status(&engine).runs, if place == "auto" { soonest() } else { place });
        // From its level on, an even number of edges ends high.
        for (edges, lit) in [(4, true), (3, false), (2, true), (1, false)] {
            chip.run(3, edges, PERIOD).unwrap();
            leds.iter().for_each(|led| assert_becomes(led, lit, place));
        }
        drop(engine);
        leds.iter().for_each(|led| {
            let trigger = fs::read_to_string(format!("/sys/class/leds/{led}/trigger")).unwrap();
            assert!(trigger.contains("[none]"), "{led}: {trigger}");
        });
    }
}

/// A chip of gpio-sim (Documentation/admin-guide/gpio/gpio-sim.rst), which can sleep and makes interrupts nevertheless.
struct StockChip {
    config: PathBuf,
    lines: PathBuf,
}

impl StockChip {
    /// `None` where the kernel has no gpio-sim.
    fn new(label: &str) -> Option<Self> {
        let config = Path::new("/sys/kernel/config");
        // Where it is mounted already, that is as good.
        let _ = Command::new("mount").args(["-t", "configfs", "configfs"]).arg(config).output().unwrap();
        let config = config.join("gpio-sim");
        if !config.is_dir() {
            return None;
        }
        let config = config.join(label);
        let bank = config.join("bank0");
        fs::create_dir(&config).unwrap();
        fs::create_dir(&bank).unwrap();
        fs::write(bank.join("num_lines"), "8").unwrap();
        fs::write(bank.join("label"), label).unwrap();
        fs::write(config.join("live"), "1").unwrap();
        let read = |path: PathBuf| fs::read_to_string(path).unwrap().trim().to_owned();
        let lines = Path::new("/sys/devices/platform").join(read(config.join("dev_name")));
        let lines = lines.join(read(bank.join("chip_name")));
        Some(Self { config, lines })
    }

    fn pull(&self, line: u32, high: bool) {
        let pull = if high { "pull-up" } else { "pull-down" };
        fs::write(self.lines.join(format!("sim_gpio{line}/pull")), pull).unwrap();
    }

    fn is_high(&self, line: u32) -> bool {
        fs::read_to_string(self.lines.join(format!("sim_gpio{line}/value"))).unwrap() == "1\n"
    }
}

impl Drop for StockChip {
    fn drop(&mut self) {
        fs::write(self.config.join("live"), "0").unwrap();
        fs::remove_dir(self.config.join("bank0")).unwrap();
        fs::remove_dir(&self.config).unwrap();
    }
}

/// Its level is behind a mutex, and its interrupt comes as one of the processor's own.
pub(crate) fn a_chip_that_sleeps_and_interrupts_is_a_source() {
    let Some(stock) = StockChip::new("taut-stock") else {
        println!("this kernel has no gpio-sim");
        return;
    };
    for place in ["auto", "kernel"] {
        let engine = start("gpio:taut-stock/1", "true", &["gpio:taut-stock/2", "led:taut-sim"], place).unwrap();
        assert_eq!(status(&engine).runs, "kthread");
        for turn in 1..=10 {
            stock.pull(1, turn % 2 == 1);
            assert_eq!(counters(&engine, turn).passed, turn, "{place}");
            let follows = || stock.is_high(2) == (turn % 2 == 1);
            let in_time = (0..1000).any(|_| {
                thread::sleep(Duration::from_millis(1));
                follows()
            });
            assert!(in_time, "{place}: edge {turn}");
        }
        assert_eq!(counters(&engine, 10).events, 10);
    }
}

//! Routes in the kernel module on the simulated chip. For a machine on which both modules may be
//! loaded and unloaded at will: guests of the lab run it (`xtask/tests/lab_route.rs`), which set
//! `TAUT_MODULE_TESTS`. Elsewhere there are no tests in it: the modules are not to be loaded into a
//! kernel that is somebody's, and what the guests run is counted there.

mod bpf;
mod faults;
mod keyboard;
mod leds;
mod log;
mod memory;
mod programs;
mod random;
mod routes;
mod stock;
#[path = "../support/mod.rs"]
mod support;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use taut_route::bench::gpio::Simulation;
use taut_route::route::{Route, parse_file};
use taut_route::run::{Counters, Engine, Status};

macro_rules! tests {
    ($($module:ident :: $name:ident),+ $(,)?) => {
        &[$((stringify!($name), $module::$name)),+]
    };
}

const TESTS: &[(&str, fn())] = tests![
    routes::edges_reach_the_output_in_hard_irq_and_in_a_thread,
    routes::only_the_edges_asked_for_are_events,
    routes::a_chip_that_sleeps_and_udp_take_the_thread,
    routes::an_led_follows_and_is_given_back,
    routes::a_key_reaches_the_output,
    leds::a_key_lights_the_led_of_its_own_keyboard,
    leds::keys_light_leds_of_other_keyboards_crosswise,
    stock::leds_on_lines_follow,
    stock::a_chip_that_sleeps_and_interrupts_is_a_source,
    programs::what_is_valid_elsewhere_only_is_refused,
    programs::what_takes_too_long_is_stopped,
    programs::a_descriptor_gives_no_rights,
    random::random_programs_are_taken_or_refused_by_the_rules,
    log::what_passes_is_logged_as_in_user_space,
    log::records_without_room_are_counted,
    log::what_reading_refuses_is_told,
    log::it_is_unloaded_after_readers_that_wait,
    faults::a_storm_masks_the_line_for_a_while,
    faults::an_edge_of_the_route_before_is_no_event,
    faults::what_is_refused_is_told,
    faults::a_program_that_is_refused_leaves_nothing,
    faults::a_chip_that_goes_away_takes_nothing_with_it,
    faults::it_is_unloaded_a_hundred_times_under_load,
    faults::the_control_device_takes_anything,
];

/// One after another: the chip has one run of edges at a time, and one test loads and unloads the
/// module. Arguments choose tests by parts of their names.
fn main() -> ExitCode {
    if std::env::var_os("TAUT_MODULE_TESTS").is_none() {
        println!("the kernel module's tests run in guests: cargo test -p xtask --test lab_route");
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(log::READER).is_some() {
        log::read_for_ever();
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|part| name.contains(part));
    let (mut passed, mut failed) = (0, 0);
    for (name, test) in TESTS.iter().filter(|(name, _)| is_wanted(name)) {
        println!("test {name} ...");
        let begin = Instant::now();
        // What it said stands above.
        let is_ok = catch_unwind(test).is_ok();
        println!("test {name} ... {} ({:.1} s)", if is_ok { "ok" } else { "FAILED" }, begin.elapsed().as_secs_f64());
        *if is_ok { &mut passed } else { &mut failed } += 1;
    }
    println!("test result: {}. {passed} passed; {failed} failed", if failed == 0 { "ok" } else { "FAILED" });
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Does something at the end of a scope.
struct Defer<F: Fn()>(F);

impl<F: Fn()> Drop for Defer<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// What is seen once it is as wanted, or after a minute: what the kernel frees goes in works of its
/// own and after grace periods of RCU, and what is lost stays for ever.
fn once<T>(look: impl Fn() -> T, is_wanted: impl Fn(&T) -> bool) -> T {
    for _ in 0..300 {
        let seen = look();
        if is_wanted(&seen) {
            return seen;
        }
        thread::sleep(Duration::from_millis(200));
    }
    look()
}

/// The chip.
fn chip() -> Simulation {
    Simulation::find().unwrap()
}

fn start(from: &str, when: &str, to: &[&str], place: &str) -> taut_link::Result<Engine> {
    start_with(from, when, to, place, "")
}

/// With more lines of the route's declaration.
fn start_with(from: &str, when: &str, to: &[&str], place: &str, more: &str) -> taut_link::Result<Engine> {
    start_file(&format!(
        "[[route]]\nname = 'r'\nfrom = '{from}'\nwhen = '{when}'\nto = {to:?}\nplace = '{place}'\n{more}\n"
    ))
}

fn start_file(file: &str) -> taut_link::Result<Engine> {
    Engine::start(vec![Route::compile(&parse_file(file).unwrap().remove(0)).unwrap()])
}

fn is_realtime() -> bool {
    rustix::system::uname().version().to_string_lossy().contains("PREEMPT_RT")
}

/// The place that is soonest here: on PREEMPT_RT all drivers may sleep.
fn soonest() -> &'static str {
    if is_realtime() { "kthread" } else { "hardirq" }
}

fn status(engine: &Engine) -> Status {
    engine.status().remove(0)
}

/// The counters when so many events have been handled; those in the thread's ring have to be waited for.
fn counters(engine: &Engine, handled: u64) -> Counters {
    for _ in 0..1000 {
        let now = status(engine).counters;
        if now.passed + now.dropped + now.short + now.lost >= handled {
            return now;
        }
        thread::sleep(Duration::from_millis(1));
    }
    status(engine).counters
}

const PERIOD: Duration = Duration::from_micros(200);

//! Random use of libtautaio by threads, signals and forks, checked against a model of what it must do: see [`model`].

mod model;
mod support;

use std::time::Duration;

use support::both_engines;

both_engines!(random_use_agrees_with_the_model);
fn random_use_agrees_with_the_model() {
    model::ffi::find_extensions(None);
    assert!(model::ffi::has_extensions(), "the library is preloaded");
    let time = Duration::from_secs(if support::long() { 15 } else { 2 });
    model::run(&model::Config::from_environment(time));
}

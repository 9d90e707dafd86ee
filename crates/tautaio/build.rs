//! The library is never unmapped: its thread and its handlers of forks stay for as long as the process.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

//! The published experiment's three ways (open, read, write, close for each event; everything kept open;
//! in the kernel): over UDP (`udp`) between network namespaces, and on the [lines](gpio) of a GPIO chip.

pub mod gpio;
mod gpio_chip;
mod gpio_kernel;
mod udp;

pub use crate::bpf::AttachPoint;
pub use gpio_kernel::KernelPath;
pub use udp::{Bench, EVERY, Measured, Path, Plan, Start, TERMS, WHEN};

//! Keys of our own.
#![expect(unsafe_code, reason = "devices made by uinput, by ioctl(2)")]

use std::ffi::c_ulong;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;

/// An input device with two keys and an LED, made by uinput (Documentation/input/uinput.rst).
pub(crate) struct Keyboard {
    device: File,
    led: String,
}

impl Keyboard {
    pub(crate) fn new(name: &str) -> Self {
        let device = File::options().write(true).open("/dev/uinput").unwrap();
        let call = |request: u32, argument: usize| {
            // SAFETY: the requests take numbers, or the address of a live structure of the length in the request.
            let result = unsafe { libc::ioctl(device.as_raw_fd(), c_ulong::from(request) as _, argument) };
            assert_eq!(result, 0, "{request:x}: {}", std::io::Error::last_os_error());
        };
        // UI_SET_EVBIT EV_KEY and EV_LED, UI_SET_LEDBIT LED_CAPSL, UI_SET_KEYBIT KEY_A and KEY_S,
        // UI_DEV_SETUP, UI_DEV_CREATE.
        call(0x4004_5564, 1);
        call(0x4004_5564, 0x11);
        call(0x4004_5569, 1);
        call(0x4004_5565, 30);
        call(0x4004_5565, 31);
        let mut setup = [0_u8; 92];
        setup[8..8 + name.len()].copy_from_slice(name.as_bytes());
        call(0x405c_5503, setup.as_ptr() as usize);
        call(0x5501, 0);
        // UI_GET_SYSNAME(64): inputN.
        let mut sysfs = [0_u8; 64];
        // SAFETY: the request tells the length of the buffer.
        let length =
            unsafe { libc::ioctl(device.as_raw_fd(), c_ulong::from(0x8040_552c_u32) as _, sysfs.as_mut_ptr()) };
        let name = String::from_utf8_lossy(&sysfs[..usize::try_from(length).unwrap()]);
        let led = format!("{}::capslock", name.trim_end_matches('\0'));
        Self { device, led }
    }

    /// The name of its LED.
    pub(crate) fn led(&self) -> &str {
        &self.led
    }

    pub(crate) fn press(&self, code: u16, value: i32) {
        for (kind, code, value) in [(1_u16, code, value), (0, 0, 0)] {
            let mut event = [0; 24];
            event[16..18].copy_from_slice(&kind.to_ne_bytes());
            event[18..20].copy_from_slice(&code.to_ne_bytes());
            event[20..].copy_from_slice(&value.to_ne_bytes());
            (&self.device).write_all(&event).unwrap();
        }
    }
}

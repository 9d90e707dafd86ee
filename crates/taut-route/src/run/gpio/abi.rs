//! The second version of the kernel's interface to GPIO lines (linux/gpio.h; Linux 5.10).
#![expect(unsafe_code, reason = "ioctl(2) on a GPIO chip has no safe wrapper")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Longest name of a consumer, with a zero byte at its end (`GPIO_MAX_NAME_SIZE`).
const NAME: usize = 32;
/// Most attributes of a request (`GPIO_V2_LINE_NUM_ATTRS_MAX`).
const ATTRIBUTES: usize = 10;
/// Bytes of an event (`struct gpio_v2_line_event`).
pub(super) const EVENT_BYTES: usize = 48;

pub(super) const USED: u64 = 1 << 0;
pub(super) const ACTIVE_LOW: u64 = 1 << 1;
pub(super) const INPUT: u64 = 1 << 2;
pub(super) const OUTPUT: u64 = 1 << 3;
pub(super) const EDGE_RISING: u64 = 1 << 4;
pub(super) const EDGE_FALLING: u64 = 1 << 5;
pub(super) const BIAS_PULL_UP: u64 = 1 << 8;
pub(super) const BIAS_PULL_DOWN: u64 = 1 << 9;
pub(super) const BIAS_DISABLED: u64 = 1 << 10;

/// `GPIO_V2_LINE_ATTR_ID_DEBOUNCE`.
const DEBOUNCE: u32 = 3;

#[repr(C)]
struct ChipInfo {
    name: [u8; NAME],
    label: [u8; NAME],
    lines: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Attribute {
    id: u32,
    padding: u32,
    /// A union of 64 bits; a debounce period is its first 32.
    value: [u8; 8],
}

#[derive(Clone, Copy)]
#[repr(C)]
struct ConfigAttribute {
    attribute: Attribute,
    mask: u64,
}

#[repr(C)]
struct Config {
    flags: u64,
    attribute_count: u32,
    padding: [u32; 5],
    attributes: [ConfigAttribute; ATTRIBUTES],
}

#[repr(C)]
struct Request {
    offsets: [u32; 64],
    consumer: [u8; NAME],
    config: Config,
    line_count: u32,
    event_buffer_size: u32,
    padding: [u32; 5],
    fd: i32,
}

#[repr(C)]
struct Values {
    bits: u64,
    mask: u64,
}

#[repr(C)]
struct LineInfo {
    name: [u8; NAME],
    consumer: [u8; NAME],
    offset: u32,
    attribute_count: u32,
    flags: u64,
    attributes: [Attribute; ATTRIBUTES],
    padding: [u32; 4],
}

const _: () = {
    assert!(size_of::<ChipInfo>() == 68);
    assert!(size_of::<Request>() == 592);
    assert!(size_of::<LineInfo>() == 256);
    assert!(size_of::<Values>() == 16);
};

/// `_IOR(0xB4, number, T)`, `_IOWR(0xB4, number, T)` (asm-generic/ioctl.h).
const fn code<T>(reads_only: bool, number: u32) -> u32 {
    let direction = if reads_only { 2 } else { 3 };
    (direction << 30) | ((size_of::<T>() as u32) << 16) | (0xB4 << 8) | number
}

/// A type that an ioctl of a GPIO chip or line fills or takes.
///
/// # Safety
/// `CODE` has to be that of an ioctl whose argument is this struct.
unsafe trait Argument: Sized {
    const CODE: u32;
}

// SAFETY: GPIO_GET_CHIPINFO_IOCTL.
unsafe impl Argument for ChipInfo {
    const CODE: u32 = code::<Self>(true, 0x01);
}

// SAFETY: GPIO_V2_GET_LINEINFO_IOCTL.
unsafe impl Argument for LineInfo {
    const CODE: u32 = code::<Self>(false, 0x05);
}

// SAFETY: GPIO_V2_GET_LINE_IOCTL.
unsafe impl Argument for Request {
    const CODE: u32 = code::<Self>(false, 0x07);
}

/// `GPIO_V2_LINE_GET_VALUES_IOCTL`; setting is the next number.
// SAFETY: as its name says.
unsafe impl Argument for Values {
    const CODE: u32 = code::<Self>(false, 0x0e);
}

fn call<A: Argument>(fd: BorrowedFd<'_>, argument: &mut A) -> io::Result<()> {
    // SAFETY: the code belongs to an ioctl that takes this struct, which is live and may be written.
    match unsafe { libc::ioctl(fd.as_raw_fd(), A::CODE as _, std::ptr::from_mut(argument)) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Name, label and number of lines of a chip.
pub(super) fn chip_info(chip: BorrowedFd<'_>) -> io::Result<(String, String, u32)> {
    let mut info = ChipInfo { name: [0; NAME], label: [0; NAME], lines: 0 };
    call(chip, &mut info)?;
    Ok((text(&info.name), text(&info.label), info.lines))
}

/// Who holds a line, if anybody does.
pub(super) fn line_holder(chip: BorrowedFd<'_>, offset: u32) -> io::Result<Option<String>> {
    let mut info = LineInfo {
        name: [0; NAME],
        consumer: [0; NAME],
        offset,
        attribute_count: 0,
        flags: 0,
        attributes: [Attribute { id: 0, padding: 0, value: [0; 8] }; ATTRIBUTES],
        padding: [0; 4],
    };
    call(chip, &mut info)?;
    Ok((info.flags & USED != 0).then(|| text(&info.consumer)))
}

/// Takes one line. `debounce_us` of 0 is none; `buffered` is the number of events that the kernel keeps, 0 for its own choice (16).
pub(super) fn request(
    chip: BorrowedFd<'_>,
    offset: u32,
    consumer: &str,
    flags: u64,
    debounce_us: u32,
    buffered: u32,
) -> io::Result<OwnedFd> {
    let none = Attribute { id: 0, padding: 0, value: [0; 8] };
    let mut attributes = [ConfigAttribute { attribute: none, mask: 0 }; ATTRIBUTES];
    if debounce_us > 0 {
        let mut value = [0; 8];
        value[..4].copy_from_slice(&debounce_us.to_ne_bytes());
        attributes[0] = ConfigAttribute { attribute: Attribute { id: DEBOUNCE, padding: 0, value }, mask: 1 };
    }
    let mut name = [0; NAME];
    // The last byte stays zero.
    name.iter_mut().zip(consumer.bytes().take(NAME - 1)).for_each(|(to, from)| *to = from);
    let mut offsets = [0; 64];
    offsets[0] = offset;
    let mut request = Request {
        offsets,
        consumer: name,
        config: Config { flags, attribute_count: u32::from(debounce_us > 0), padding: [0; 5], attributes },
        line_count: 1,
        event_buffer_size: buffered,
        padding: [0; 5],
        fd: -1,
    };
    call(chip, &mut request)?;
    // SAFETY: the ioctl has succeeded, and so the number is a new descriptor that nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(request.fd) })
}

/// Reads the line of a request.
#[inline]
pub(super) fn get(line: BorrowedFd<'_>) -> io::Result<bool> {
    let mut values = Values { bits: 0, mask: 1 };
    call(line, &mut values)?;
    Ok(values.bits & 1 != 0)
}

/// Sets the line of a request.
#[inline]
pub(super) fn set(line: BorrowedFd<'_>, active: bool) -> io::Result<()> {
    let mut values = Values { bits: active.into(), mask: 1 };
    // SAFETY: GPIO_V2_LINE_SET_VALUES_IOCTL takes this struct, which is live.
    match unsafe { libc::ioctl(line.as_raw_fd(), code::<Values>(false, 0x0f) as _, &raw mut values) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

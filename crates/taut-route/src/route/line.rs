//! Addresses of lines, input devices, LEDs and serial lines: `KIND:NAME/NUMBER?option=value&…`.
//!
//! All of them are the same for the kernel's module and for user space. Errors begin with the column in the address.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A GPIO line: `LABEL/OFFSET`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GpioLine {
    /// The chip's label, as `gpiodetect` prints it; or its name, `gpiochipN`.
    pub chip: String,
    /// Number of the line on the chip.
    pub offset: u32,
    /// Whether low is 1 (`active=low`).
    pub active_low: bool,
    /// Resistor of the line (`bias=`); none leaves it as it is.
    pub bias: Option<Bias>,
    /// How user space takes it (`by=`).
    pub by: Access,
}

/// A resistor of a line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Bias {
    /// None.
    Off,
    /// To the supply.
    PullUp,
    /// To ground.
    PullDown,
}

/// An interface of the kernel to GPIO lines.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Access {
    /// The faster one that can do what is asked for.
    #[default]
    Auto,
    /// The character device, second version of its interface (linux/gpio.h; Linux 5.10).
    Cdev,
    /// `/sys/class/gpio` (Documentation/userspace-api/gpio/sysfs.rst).
    Sysfs,
}

/// Which changes of a line are events.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Edge {
    /// To 1 and to 0.
    #[default]
    Both,
    /// To 1.
    Rising,
    /// To 0.
    Falling,
}

/// Edges of a GPIO line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GpioEdges {
    /// The line.
    pub line: GpioLine,
    /// Which ones.
    pub edge: Edge,
    /// How long a level has to stay before it counts: 1 us to 1 s.
    pub debounce: Option<Duration>,
}

/// One kind of event of an input device: `NAME/TYPE/CODE`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct InputEvents {
    /// The device's name, as in `/proc/bus/input/devices`; or its node, `/dev/input/eventN`.
    pub device: String,
    /// Type of the event (`EV_*` in linux/input-event-codes.h).
    pub kind: u16,
    /// Its code.
    pub code: u16,
}

/// A serial line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Serial {
    /// Its node.
    pub path: PathBuf,
    /// Bits per second; none leaves it as it is set.
    pub baud: Option<u32>,
}

/// Types of input events by the names that they have in linux/input-event-codes.h, without `EV_`.
const TYPES: &[(&str, u16)] =
    &[("key", 1), ("rel", 2), ("abs", 3), ("msc", 4), ("sw", 5), ("led", 0x11), ("snd", 0x12)];
/// EV_MAX and the largest of all `*_MAX` of codes, KEY_MAX.
const TYPE_MAX: u32 = 0x1f;
const CODE_MAX: u32 = 0x2ff;

/// An address in parts, each with the column at which it begins.
struct Parts<'a> {
    whole: &'a str,
    /// Between the kind and the options.
    name: &'a str,
    options: Vec<(&'a str, &'a str)>,
}

/// The address that has been asked for as a whole, when something of it is missing or wrong at that place.
fn wrong(whole: &str, part: &str, expected: &str) -> String {
    // A part is a piece of the whole, so the distance is its place.
    let at = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize).min(whole.len());
    let column = whole.get(..at).map_or(0, |before| before.chars().count()) + 1;
    let found = if part.is_empty() { "nothing".to_owned() } else { format!("`{part}`") };
    format!("`{whole}`: column {column}: expected {expected}, found {found}")
}

impl<'a> Parts<'a> {
    fn of(whole: &'a str) -> Result<Self, String> {
        let (head, tail) = whole.split_once('?').map_or((whole, None), |(head, tail)| (head, Some(tail)));
        let name = head.split_once(':').map_or_else(|| &head[head.len()..], |(_, name)| name);
        let mut options: Vec<(&str, &str)> = Vec::new();
        for text in tail.into_iter().flat_map(|tail| tail.split('&')) {
            let option = text.split_once('=').ok_or_else(|| wrong(whole, text, "an option such as `edge=rising`"))?;
            if options.iter().any(|(key, _)| *key == option.0) {
                return Err(wrong(whole, text, &format!("`{}` once only", option.0)));
            }
            options.push(option);
        }
        if whole.contains('\0') {
            return Err(wrong(whole, whole, "an address without a zero byte"));
        }
        Ok(Self { whole, name, options })
    }

    fn wrong(&self, part: &str, expected: &str) -> String {
        wrong(self.whole, part, expected)
    }

    fn option<T: Copy>(&self, key: &str, values: &[(&str, T)]) -> Result<Option<T>, String> {
        let Some((_, text)) = self.options.iter().find(|(known, _)| *known == key) else { return Ok(None) };
        let names: Vec<&str> = values.iter().map(|(name, _)| *name).collect();
        let value = values.iter().find(|(name, _)| name == text).map(|(_, value)| *value);
        value.map(Some).ok_or_else(|| self.wrong(text, &names.join(" or ")))
    }

    fn parsed<T>(&self, key: &str, expected: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, String> {
        let Some((_, text)) = self.options.iter().find(|(known, _)| *known == key) else { return Ok(None) };
        parse(text).map(Some).ok_or_else(|| self.wrong(text, expected))
    }

    fn only(&self, known: &[&str]) -> Result<(), String> {
        match self.options.iter().find(|(key, _)| !known.contains(key)) {
            Some((key, _)) if known.is_empty() => Err(self.wrong(key, "no options")),
            Some((key, _)) => Err(self.wrong(key, &format!("an option ({})", known.join(", ")))),
            None => Ok(()),
        }
    }

    fn line(&self) -> Result<GpioLine, String> {
        let slash = self.name.rfind('/').unwrap_or(self.name.len());
        let (chip, offset) = (&self.name[..slash], self.name.get(slash + 1..).unwrap_or_else(|| &self.name[slash..]));
        if chip.is_empty() {
            return Err(self.wrong(chip, "the label of a GPIO chip and the number of a line, such as gpio:pinctrl/17"));
        }
        let number = offset.parse().ok().filter(|_| !offset.starts_with('+'));
        let bias = [("off", Bias::Off), ("pull-up", Bias::PullUp), ("pull-down", Bias::PullDown)];
        Ok(GpioLine {
            chip: chip.to_owned(),
            offset: number.ok_or_else(|| self.wrong(offset, "the number of a line, such as /17"))?,
            active_low: self.option("active", &[("high", false), ("low", true)])?.unwrap_or_default(),
            bias: self.option("bias", &bias)?,
            by: self
                .option("by", &[("auto", Access::Auto), ("cdev", Access::Cdev), ("sysfs", Access::Sysfs)])?
                .unwrap_or_default(),
        })
    }
}

/// A number with its unit, as in `10ms`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let ns = match unit {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    };
    Some(Duration::from_nanos(number.checked_mul(ns)?))
}

impl GpioLine {
    /// Parses `gpio:LABEL/OFFSET[?active=…&by=…]` of a sink.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = Parts::of(text)?;
        parts.only(&["active", "by"])?;
        parts.line()
    }

    /// The line without how it is used: two uses of it stand in each other's way.
    pub fn place(&self) -> String {
        format!("gpio:{}/{}", self.chip, self.offset)
    }

    fn options(&self) -> impl Iterator<Item = String> + use<> {
        let bias = self.bias.map(|bias| match bias {
            Bias::Off => "bias=off",
            Bias::PullUp => "bias=pull-up",
            Bias::PullDown => "bias=pull-down",
        });
        let by = match self.by {
            Access::Auto => None,
            Access::Cdev => Some("by=cdev"),
            Access::Sysfs => Some("by=sysfs"),
        };
        [self.active_low.then_some("active=low"), bias, by].into_iter().flatten().map(str::to_owned)
    }
}

fn joined(f: &mut fmt::Formatter<'_>, options: impl Iterator<Item = String>) -> fmt::Result {
    for (index, option) in options.enumerate() {
        write!(f, "{}{option}", if index == 0 { '?' } else { '&' })?;
    }
    Ok(())
}

impl fmt::Display for GpioLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place())?;
        joined(f, self.options())
    }
}

impl GpioEdges {
    /// Parses `gpio:LABEL/OFFSET[?edge=…&debounce=…&active=…&bias=…&by=…]` of a source.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = Parts::of(text)?;
        parts.only(&["edge", "debounce", "active", "bias", "by"])?;
        let edges = [("both", Edge::Both), ("rising", Edge::Rising), ("falling", Edge::Falling)];
        let allowed = Duration::from_micros(1)..=Duration::from_secs(1);
        let debounce = |text: &str| duration(text).filter(|time| allowed.contains(time));
        Ok(Self {
            line: parts.line()?,
            edge: parts.option("edge", &edges)?.unwrap_or_default(),
            debounce: parts.parsed("debounce", "a time from 1us to 1s with its unit, such as 5ms", debounce)?,
        })
    }
}

impl fmt::Display for GpioEdges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let edge = match self.edge {
            Edge::Both => "edge=both",
            Edge::Rising => "edge=rising",
            Edge::Falling => "edge=falling",
        };
        let debounce = self.debounce.map(|time| format!("debounce={}us", time.as_micros()));
        f.write_str(&self.line.place())?;
        joined(f, [edge.to_owned()].into_iter().chain(debounce).chain(self.line.options()))
    }
}

impl InputEvents {
    /// Parses `input:NAME/TYPE/CODE`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = Parts::of(text)?;
        parts.only(&[])?;
        let mut pieces = parts.name.rsplitn(3, '/');
        let code = pieces.next().unwrap_or_default();
        let (Some(kind), Some(device)) = (pieces.next(), pieces.next().filter(|device| !device.is_empty())) else {
            return Err(parts.wrong(parts.name, "device, type and code, such as input:gpio-keys/key/28"));
        };
        let number = |text: &str, most: u32| {
            let number = match text.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => text.parse(),
            };
            number.ok().filter(|number| *number <= most && !text.contains('+')).map(|number| number as u16)
        };
        let named = TYPES.iter().find(|(name, _)| *name == kind).map(|(_, number)| *number);
        // EV_SYN ends groups of events and is none itself.
        let kind = named.or_else(|| number(kind, TYPE_MAX).filter(|kind| *kind != 0)).ok_or_else(|| {
            let names: Vec<&str> = TYPES.iter().map(|(name, _)| *name).collect();
            parts.wrong(kind, &format!("a type of event ({}, or its number from 1 to 31)", names.join(", ")))
        })?;
        let code = number(code, CODE_MAX)
            .ok_or_else(|| parts.wrong(code, "the number of a code, such as 28 or 0x1c (evtest prints them)"))?;
        Ok(Self { device: device.to_owned(), kind, code })
    }
}

impl fmt::Display for InputEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TYPES.iter().find(|(_, number)| *number == self.kind) {
            Some((name, _)) => write!(f, "input:{}/{name}/{}", self.device, self.code),
            None => write!(f, "input:{}/{}/{}", self.device, self.kind, self.code),
        }
    }
}

impl Serial {
    /// Parses `tty:PATH[?baud=…]`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = Parts::of(text)?;
        parts.only(&["baud"])?;
        if parts.name.is_empty() {
            return Err(parts.wrong(parts.name, "the node of a serial line, such as tty:/dev/ttyUSB0?baud=115200"));
        }
        let bits = |text: &str| text.parse().ok().filter(|bits| (50..=4_000_000).contains(bits));
        Ok(Self { path: parts.name.into(), baud: parts.parsed("baud", "bits per second from 50 to 4000000", bits)? })
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tty:{}", self.path.display())?;
        joined(f, self.baud.map(|baud| format!("baud={baud}")).into_iter())
    }
}

/// Parses `led:NAME`: a name in `/sys/class/leds`.
pub(super) fn led(text: &str) -> Result<String, String> {
    let parts = Parts::of(text)?;
    parts.only(&[])?;
    let is_name = !parts.name.is_empty() && !parts.name.contains('/') && ![".", ".."].contains(&parts.name);
    is_name
        .then(|| parts.name.to_owned())
        .ok_or_else(|| parts.wrong(parts.name, "the name of an LED (ls /sys/class/leds), such as led:input3::capslock"))
}

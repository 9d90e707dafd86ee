//! Figures in sentences.

/// `48.2 ms`, with three digits.
pub(crate) fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let digits = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {unit}")
}

/// `12.3 %`.
pub(crate) fn share(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 99.95 || percent == 0.0 {
        format!("{percent:.0} %")
    } else if percent < 0.1 {
        format!("{percent:.2} %")
    } else {
        format!("{percent:.1} %")
    }
}

/// `1 time`, `7 times`.
pub(crate) fn times(count: impl Into<u64>) -> String {
    let count = count.into();
    format!("{count} time{}", if count == 1 { "" } else { "s" })
}

/// `64 kB`, in steps of 1000.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        10_000_000..10_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

/// `6.55 Mbit/s`.
pub(crate) fn rate(bytes: u64, ns: u64) -> String {
    let bits = bytes as f64 * 8e9 / ns.max(1) as f64;
    match bits {
        ..1e3 => format!("{bits:.0} bit/s"),
        ..1e6 => format!("{:.0} kbit/s", bits / 1e3),
        _ => format!("{:.1} Mbit/s", bits / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_unit() {
        assert_eq!(
            [time(7), time(1_500), time(48_240_000), time(3_000_000_000)],
            ["7 ns", "1.50 µs", "48.2 ms", "3.00 s"]
        );
        assert_eq!([share(0.0), share(0.0004), share(0.123), share(1.0)], ["0 %", "0.04 %", "12.3 %", "100 %"]);
        assert_eq!([0_u32, 1, 2].map(times), ["0 times", "1 time", "2 times"]);
        assert_eq!([bytes(64), bytes(65_536), bytes(12_000_000)], ["64 bytes", "65 kB", "12 MB"]);
        assert_eq!([rate(32_768, 40_000_000), rate(100, 1_000_000_000)], ["6.6 Mbit/s", "800 bit/s"]);
    }
}

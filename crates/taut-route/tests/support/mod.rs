//! Random programs and events, and skipping what can't run here.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::io::Write;

/// Notes loudly that a test can't run here.
pub(crate) fn skip(test: &str, reason: &str) {
    eprintln!("SKIPPED: {test}: {reason}");
    if let Some(path) = std::env::var_os("TAUT_SKIP_LOG") {
        let mut log = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        log.write_all(format!("taut-route {test}: {reason}\n").as_bytes()).unwrap();
    }
}

/// xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled").
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Numbers near the edges more often than others.
    pub(crate) fn number(&mut self) -> i64 {
        match self.below(8) {
            0 => [0, 1, -1, i64::MAX, i64::MIN, i64::MIN + 1, 63, 64][self.below(8)],
            1 | 2 => self.below(9) as i64 - 4,
            3 => i64::from(self.next() as i32),
            4 => 1_i64.wrapping_shl(self.below(64) as u32).wrapping_add(self.below(3) as i64 - 1),
            _ => self.next() as i64 >> self.below(64),
        }
    }

    /// Text of a number expression.
    pub(crate) fn number_text(&mut self, depth: usize) -> String {
        if depth == 0 || self.below(6) == 0 {
            return match self.below(9) {
                0 | 1 => format!("0x{:x}", self.number()),
                2 | 3 => "value".to_owned(),
                4 => "previous".to_owned(),
                5 => ["len", "count", "passed", "since_last", "since_passed"][self.below(5)].to_owned(),
                _ => {
                    let form = [
                        "u8", "i8", "u16be", "u16le", "i16be", "i16le", "u32be", "u32le", "i32be", "i32le", "u64be",
                        "u64le", "i64be", "i64le",
                    ][self.below(14)];
                    format!("{form}[{}]", self.below(12))
                }
            };
        }
        let d = depth - 1;
        match self.below(20) {
            0..=8 => {
                let operator = ["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"][self.below(10)];
                format!("({} {operator} {})", self.number_text(d), self.number_text(d))
            }
            9 => format!("{}({})", ["-", "~"][self.below(2)], self.number_text(d)),
            10 => format!("abs({})", self.number_text(d)),
            11 => format!("{}({}, {})", ["min", "max"][self.below(2)], self.number_text(d), self.number_text(d)),
            12 => format!("clamp({}, {}, {})", self.number_text(d), self.number_text(d), self.number_text(d)),
            13 => format!("({} ? {} : {})", self.condition_text(d), self.number_text(d), self.number_text(d)),
            14 => format!("average({}, {})", self.number_text(d), 1 + self.below(17)),
            15 => format!("smooth({}, {})", self.number_text(d), 1 + self.below(16)),
            16 => format!("median({})", self.number_text(d)),
            17 => format!("total({})", self.number_text(d)),
            18 => format!("delta({})", self.number_text(d)),
            _ => format!("prev({})", self.number_text(d)),
        }
    }

    /// Text of a condition.
    pub(crate) fn condition_text(&mut self, depth: usize) -> String {
        let d = depth.saturating_sub(1);
        if depth == 0 {
            return ["true", "false"][self.below(2)].to_owned();
        }
        match self.below(18) {
            0..=6 => {
                let operator = ["==", "!=", "<", "<=", ">", ">="][self.below(6)];
                format!("({} {operator} {})", self.number_text(d), self.number_text(d))
            }
            7 | 8 => format!(
                "({} {} {})",
                self.condition_text(d),
                ["&&", "||", "==", "!="][self.below(4)],
                self.condition_text(d)
            ),
            9 => format!("!{}", self.condition_text(d)),
            10 => {
                let low = self.number() >> 1;
                format!("hysteresis({}, {low}, {})", self.number_text(d), low + 1 + self.below(1000) as i64)
            }
            11 => format!("debounce({}, {}us)", self.condition_text(d), 1 + self.below(20)),
            12 => format!("limit({}, {}, {}us)", self.condition_text(d), 1 + self.below(4), 1 + self.below(50)),
            13 => format!("{}({})", ["rise", "fall"][self.below(2)], self.condition_text(d)),
            14 => format!("changed({})", self.number_text(d)),
            15 => format!("changed({})", self.condition_text(d)),
            16 => format!("prev({})", self.condition_text(d)),
            _ => format!("({} ? {} : {})", self.condition_text(d), self.condition_text(d), self.condition_text(d)),
        }
    }

    pub(crate) fn payload(&mut self) -> Vec<u8> {
        let length = if self.below(6) == 0 { self.below(20) } else { 20 + self.below(30) };
        let mut bytes: Vec<u8> = (0..length.div_ceil(8)).flat_map(|_| self.number().to_be_bytes()).collect();
        bytes.truncate(length);
        bytes
    }
}

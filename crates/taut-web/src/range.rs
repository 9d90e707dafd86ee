use hyper::header::HeaderValue;

/// What a `Range` field asks for (RFC 9110, section 14).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Range {
    /// All of it: there is no field, or one that is not understood, or one with several ranges, for
    /// which a server need not make an answer in parts.
    Whole,
    /// These bytes, at least one: from the first to the last.
    Part {
        /// Offset of the first byte.
        first: u64,
        /// Offset of the last byte.
        last: u64,
    },
    /// Bytes that are not there.
    Unsatisfiable,
}

impl Range {
    /// Reads a field for something of `length` bytes.
    pub(crate) fn of(field: Option<&HeaderValue>, length: u64) -> Self {
        let set = field.and_then(|field| field.to_str().ok()).and_then(|text| {
            let (unit, set) = text.split_once('=')?;
            unit.trim().eq_ignore_ascii_case("bytes").then_some(set.trim())
        });
        set.and_then(|set| Self::parse(set, length)).unwrap_or(Self::Whole)
    }

    fn parse(spec: &str, length: u64) -> Option<Self> {
        let (first, last) = spec.split_once('-')?;
        if first.is_empty() {
            let suffix = number(last)?;
            return Some(match (suffix, length) {
                (0, _) => Self::Unsatisfiable,
                // The whole of nothing.
                (_, 0) => Self::Whole,
                _ => Self::Part { first: length.saturating_sub(suffix), last: length - 1 },
            });
        }
        let first = number(first)?;
        let last = if last.is_empty() { u64::MAX } else { number(last)? };
        if last < first {
            return None;
        }
        Some(if first < length { Self::Part { first, last: last.min(length - 1) } } else { Self::Unsatisfiable })
    }
}

/// Digits only, and as many as one likes: what is too large lies behind every end.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_cut_to_what_is_there() {
        let part = |first, last| Range::Part { first, last };
        for (field, length, range) in [
            ("bytes=0-0", 10, part(0, 0)),
            ("bytes=0-499", 10, part(0, 9)),
            ("bytes=9-", 10, part(9, 9)),
            ("bytes=-3", 10, part(7, 9)),
            ("bytes=-30", 10, part(0, 9)),
            ("BYTES=2-3", 10, part(2, 3)),
            ("bytes=0-99999999999999999999999", 10, part(0, 9)),
            ("bytes=10-", 10, Range::Unsatisfiable),
            ("bytes=99999999999999999999999-", 10, Range::Unsatisfiable),
            ("bytes=-0", 10, Range::Unsatisfiable),
            ("bytes=0-", 0, Range::Unsatisfiable),
            ("bytes=-5", 0, Range::Whole),
            ("bytes=5-2", 10, Range::Whole),
            ("bytes=0-1,3-4", 10, Range::Whole),
            ("lines=0-1", 10, Range::Whole),
            ("bytes=+1-2", 10, Range::Whole),
            ("bytes=-", 10, Range::Whole),
            ("bytes", 10, Range::Whole),
        ] {
            assert_eq!(Range::of(Some(&HeaderValue::from_static(field)), length), range, "{field} of {length}");
        }
        assert_eq!(Range::of(None, 10), Range::Whole);
    }
}

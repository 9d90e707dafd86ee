//! Validators and preconditions (RFC 9110, sections 8.8 and 13).

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::{HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};

use crate::tree::OpenFile;

/// What tells one state of a file from another.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Validators {
    tag: String,
    is_weak: bool,
    /// `None` where the time lies in the future, and so says nothing (section 8.8.2.1).
    pub(crate) modified: Option<SystemTime>,
    now: SystemTime,
}

/// What a request's preconditions come to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// Go on.
    Proceed,
    /// 304: the client has it.
    NotModified,
    /// 412.
    Failed,
}

/// Two changes within one tick of the kernel's clock leave the same times (10 ms at its slowest), and a file system
/// may know no more than two seconds; a tag made sooner than that may stand for two contents, and so is a weak one.
const SETTLED: Duration = Duration::from_secs(3);

impl Validators {
    /// Those of a file, for one of its codings.
    pub(crate) fn of(file: &OpenFile, coding: &str, now: SystemTime) -> Self {
        let nanos = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let is_settled = |time: SystemTime| now.duration_since(time).is_ok_and(|age| age >= SETTLED);
        Self {
            tag: format!("{:x}-{:x}-{:x}{coding}", file.length, nanos(file.modified), nanos(file.changed)),
            is_weak: !is_settled(file.changed),
            modified: Some(file.modified).filter(|&modified| modified <= now),
            now,
        }
    }

    /// Whether what was asked for may be sent, in the order of section 13.2.2.
    pub(crate) fn check(&self, fields: &HeaderMap) -> Verdict {
        if fields.contains_key(IF_MATCH) {
            if !matches(fields, IF_MATCH, |tag| self.is(tag, true)) {
                return Verdict::Failed;
            }
        } else if let Some(time) = date(fields, IF_UNMODIFIED_SINCE)
            && self.modified.is_none_or(|modified| seconds(modified) > seconds(time))
        {
            return Verdict::Failed;
        }
        if fields.contains_key(IF_NONE_MATCH) {
            if matches(fields, IF_NONE_MATCH, |tag| self.is(tag, false)) {
                return Verdict::NotModified;
            }
        } else if let (Some(time), Some(modified)) = (date(fields, IF_MODIFIED_SINCE), self.modified)
            && seconds(modified) <= seconds(time)
        {
            return Verdict::NotModified;
        }
        Verdict::Proceed
    }

    /// Whether a part that is asked for belongs to what the client has (section 13.1.5).
    pub(crate) fn allows_range(&self, fields: &HeaderMap) -> bool {
        let mut values = fields.get_all(IF_RANGE).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return !fields.contains_key(IF_RANGE);
        };
        let Ok(text) = value.to_str() else { return false };
        match Tag::parse(text.trim()) {
            Some((tag, "")) => self.is(&tag, true),
            _ => httpdate::parse_http_date(text).is_ok_and(|time| self.is_exact(time)),
        }
    }

    /// A date is a strong validator only where a second has passed since (section 8.8.2.2).
    fn is_exact(&self, time: SystemTime) -> bool {
        let is_old = |modified: SystemTime| self.now.duration_since(modified).is_ok_and(|age| age >= SETTLED);
        self.modified.is_some_and(|modified| seconds(modified) == seconds(time) && is_old(modified))
    }

    /// Comparison of section 8.8.3.2.
    fn is(&self, tag: &Tag<'_>, strongly: bool) -> bool {
        tag.opaque == self.tag && !(strongly && (tag.is_weak || self.is_weak))
    }
}

impl fmt::Display for Validators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\"{}\"", if self.is_weak { "W/" } else { "" }, self.tag)
    }
}

/// An entity tag as a client sends it.
struct Tag<'a> {
    opaque: &'a str,
    is_weak: bool,
}

impl<'a> Tag<'a> {
    /// The tag at the begin of a text, and what follows.
    fn parse(text: &'a str) -> Option<(Self, &'a str)> {
        let (is_weak, rest) = text.strip_prefix("W/").map_or((false, text), |rest| (true, rest));
        let (opaque, rest) = rest.strip_prefix('"')?.split_once('"')?;
        Some((Self { opaque, is_weak }, rest))
    }
}

/// Whether one of a field's tags is meant, or any (`*`). The list ends with the first thing that is no tag.
fn matches(fields: &HeaderMap, name: HeaderName, is_meant: impl Fn(&Tag<'_>) -> bool) -> bool {
    fields.get_all(name).iter().filter_map(|value| value.to_str().ok()).any(|text| {
        let mut rest = text.trim();
        if rest == "*" {
            return true;
        }
        while let Some((tag, after)) = Tag::parse(rest) {
            if is_meant(&tag) {
                return true;
            }
            rest = after.trim_start_matches([' ', '\t', ',']);
        }
        false
    })
}

/// A field's time; `None` when there is none, several or one that can't be read.
fn date(fields: &HeaderMap, name: HeaderName) -> Option<SystemTime> {
    let mut values = fields.get_all(name).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    httpdate::parse_http_date(value.to_str().ok()?).ok()
}

/// HTTP's times have whole seconds.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    const THEN: u64 = 1_000_000_000;

    fn validators(is_weak: bool) -> Validators {
        let modified = UNIX_EPOCH + Duration::new(THEN, 5);
        let now = UNIX_EPOCH + Duration::from_secs(THEN + 100);
        Validators { tag: "a".to_owned(), is_weak, modified: Some(modified), now }
    }

    fn fields(list: &[(HeaderName, &str)]) -> HeaderMap {
        list.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    fn at(seconds: u64) -> String {
        httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn tags_go_before_dates() {
        let (same, older, newer) = (at(THEN), at(THEN - 1), at(THEN + 1));
        for (list, verdict) in [
            (vec![], Verdict::Proceed),
            (vec![(IF_NONE_MATCH, "\"a\"")], Verdict::NotModified),
            (vec![(IF_NONE_MATCH, "W/\"a\"")], Verdict::NotModified),
            (vec![(IF_NONE_MATCH, "\"b\", \"a\"")], Verdict::NotModified),
            (vec![(IF_NONE_MATCH, "*")], Verdict::NotModified),
            (vec![(IF_NONE_MATCH, "\"b\""), (IF_NONE_MATCH, "\"a\"")], Verdict::NotModified),
            (vec![(IF_NONE_MATCH, "\"b\""), (IF_MODIFIED_SINCE, newer.as_str())], Verdict::Proceed),
            (vec![(IF_NONE_MATCH, "a")], Verdict::Proceed),
            (vec![(IF_MODIFIED_SINCE, same.as_str())], Verdict::NotModified),
            (vec![(IF_MODIFIED_SINCE, newer.as_str())], Verdict::NotModified),
            (vec![(IF_MODIFIED_SINCE, older.as_str())], Verdict::Proceed),
            (vec![(IF_MODIFIED_SINCE, "yesterday")], Verdict::Proceed),
            (vec![(IF_MATCH, "\"a\"")], Verdict::Proceed),
            (vec![(IF_MATCH, "*")], Verdict::Proceed),
            (vec![(IF_MATCH, "W/\"a\"")], Verdict::Failed),
            (vec![(IF_MATCH, "\"b\"")], Verdict::Failed),
            (vec![(IF_MATCH, "\"a\""), (IF_UNMODIFIED_SINCE, older.as_str())], Verdict::Proceed),
            (vec![(IF_UNMODIFIED_SINCE, older.as_str())], Verdict::Failed),
            (vec![(IF_UNMODIFIED_SINCE, same.as_str())], Verdict::Proceed),
            (vec![(IF_MATCH, "\"a\""), (IF_NONE_MATCH, "\"a\"")], Verdict::NotModified),
            (vec![(IF_MATCH, "\"b\""), (IF_NONE_MATCH, "\"a\"")], Verdict::Failed),
        ] {
            assert_eq!(validators(false).check(&fields(&list)), verdict, "{list:?}");
        }
        assert_eq!(validators(true).check(&fields(&[(IF_MATCH, "W/\"a\"")])), Verdict::Failed);
        assert_eq!(validators(true).check(&fields(&[(IF_NONE_MATCH, "\"a\"")])), Verdict::NotModified);
    }

    #[test]
    fn a_part_is_one_of_the_same_thing() {
        let (same, newer) = (at(THEN), at(THEN + 1));
        for (value, is_weak, allowed) in [
            ("\"a\"", false, true),
            ("W/\"a\"", false, false),
            ("\"a\"", true, false),
            ("\"b\"", false, false),
            (same.as_str(), false, true),
            (newer.as_str(), false, false),
            ("rubbish", false, false),
        ] {
            assert_eq!(validators(is_weak).allows_range(&fields(&[(IF_RANGE, value)])), allowed, "{value}");
        }
        assert!(validators(true).allows_range(&HeaderMap::new()));
        let young = Validators { now: UNIX_EPOCH + Duration::from_secs(THEN + 1), ..validators(false) };
        assert!(!young.allows_range(&fields(&[(IF_RANGE, &same)])));
    }
}

use percent_encoding::percent_decode_str;

/// The path of a request's target, taken apart: names beneath the directory, each of which is one entry and not hidden.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Name {
    segments: Vec<Vec<u8>>,
    is_directory: bool,
}

/// Why a target names nothing here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// It can't be a path, or tries to be another one than it seems.
    Malformed(&'static str),
    /// It is, or lies in, an entry whose name begins with a dot; `.` and `..` are among those.
    Hidden,
    /// Longer than the kernel takes.
    TooLong,
}

/// Linux: `NAME_MAX`, `PATH_MAX` less the final NUL (limits.h).
const LONGEST_SEGMENT: usize = 255;
const LONGEST_PATH: usize = 4095;

impl Name {
    /// Takes the path of a target apart and decodes it, once (RFC 3986, section 2.1). An encoded slash, a control
    /// character and a NUL are refused, since what they would name can't be told from something else further down.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn parse(path: &str) -> Result<Self, Refusal> {
        let rest = path.strip_prefix('/').ok_or(Refusal::Malformed("the target is no path"))?;
        if rest.is_empty() {
            return Ok(Self { segments: Vec::new(), is_directory: true });
        }
        let (names, is_directory) = rest.strip_suffix('/').map_or((rest, false), |names| (names, true));
        let segments = names.split('/').map(segment).collect::<Result<Vec<_>, _>>()?;
        let name = Self { segments, is_directory };
        if name.path().len() > LONGEST_PATH {
            return Err(Refusal::TooLong);
        }
        Ok(name)
    }

    /// The entries' names from the top, none of which is empty, `.` or `..` or has a slash or a NUL in it.
    pub fn segments(&self) -> &[Vec<u8>] {
        &self.segments
    }

    /// Whether the target ended in a slash.
    pub const fn is_directory(&self) -> bool {
        self.is_directory
    }

    /// The path relative to the directory; `.` for the directory itself.
    pub fn path(&self) -> Vec<u8> {
        if self.segments.is_empty() { b".".to_vec() } else { self.segments.join(&b'/') }
    }

    /// The same with an entry of that directory.
    pub fn join(&self, entry: &str) -> Self {
        let mut segments = self.segments.clone();
        segments.push(entry.as_bytes().to_vec());
        Self { segments, is_directory: false }
    }
}

fn segment(text: &str) -> Result<Vec<u8>, Refusal> {
    if text.is_empty() {
        return Err(Refusal::Malformed("two slashes in a row"));
    }
    let is_escape = |rest: &str| rest.as_bytes().get(..2).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    if !text.split('%').skip(1).all(is_escape) {
        return Err(Refusal::Malformed("a % without two hexadecimal digits"));
    }
    let bytes: Vec<u8> = percent_decode_str(text).collect();
    if bytes.iter().any(|&byte| byte == b'/' || byte == 0) {
        return Err(Refusal::Malformed("an encoded slash or NUL"));
    }
    if bytes.iter().any(u8::is_ascii_control) {
        return Err(Refusal::Malformed("a control character"));
    }
    if bytes.first() == Some(&b'.') {
        return Err(Refusal::Hidden);
    }
    if bytes.len() > LONGEST_SEGMENT {
        return Err(Refusal::TooLong);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_decoded_once() {
        for (path, names, is_directory) in [
            ("/", ".", true),
            ("/a/b.html", "a/b.html", false),
            ("/a/", "a", true),
            ("/a%20b/%C3%A4", "a b/ä", false),
            ("/%252e%252e/x", "%2e%2e/x", false),
            ("/a..b/c..", "a..b/c..", false),
            (r"/a\..\b", r"a\..\b", false),
        ] {
            let name = Name::parse(path).unwrap();
            assert_eq!((name.path(), name.is_directory()), (names.as_bytes().to_vec(), is_directory), "{path}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for path in ["/..", "/a/../b", "/.", "/%2e%2e/etc", "/.%2e/etc", "/.git/config", "/a/%2Egit", "/.well-known/x"]
        {
            assert_eq!(Name::parse(path), Err(Refusal::Hidden), "{path}");
        }
        for path in [
            "",
            "*",
            "a",
            "//",
            "//a",
            "/a//b",
            "/%",
            "/%0",
            "/%zz",
            "/%+1",
            "/a%2fb",
            "/a%2F..%2Fb",
            "/%00",
            "/a%0d%0ab",
        ] {
            assert!(matches!(Name::parse(path), Err(Refusal::Malformed(_))), "{path}");
        }
        for path in [format!("/{}", "a".repeat(256)), "/abc".repeat(1025)] {
            assert_eq!(Name::parse(&path), Err(Refusal::TooLong));
        }
        assert!(Name::parse(&format!("/{}", "a".repeat(255))).is_ok());
    }

    proptest! {
        #[test]
        fn no_name_leads_upwards(path in "/([a.%/2eEfF05c\\\\]|%2e|%2f|%00|\\PC){0,24}") {
            if let Ok(name) = Name::parse(&path) {
                for segment in name.segments() {
                    prop_assert!(!segment.is_empty() && segment[0] != b'.');
                    prop_assert!(!segment.contains(&b'/') && !segment.contains(&0));
                }
            }
        }
    }
}

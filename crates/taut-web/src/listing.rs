use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All that stands for itself in a segment of a path (RFC 3986, section 2.3).
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Most entries of a listing; what lies beyond is said to be left out.
pub(crate) const MOST: usize = 10_000;

/// One line of a listing.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Line {
    /// Its name, as bytes: what is no UTF-8 is shown with replacement characters, and found all the same.
    pub(crate) name: Vec<u8>,
    pub(crate) is_directory: bool,
    /// Length of a file in bytes.
    pub(crate) length: Option<u64>,
}

/// A page with the entries of the directory at `path`, in the order of their names.
pub(crate) fn render(path: &str, mut lines: Vec<Line>, is_cut: bool) -> String {
    lines.sort();
    lines.dedup_by(|one, other| one.name == other.name);
    let title = escape(path);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n</head>\n<body>\n<h1>{title}</h1>\n<ul>\n"
    );
    if path != "/" {
        page.push_str("<li><a href=\"../\">../</a></li>\n");
    }
    for Line { name, is_directory, length } in &lines {
        let slash = if *is_directory { "/" } else { "" };
        let length = length.map(|length| format!(" ({length} bytes)")).unwrap_or_default();
        let shown = escape(&String::from_utf8_lossy(name));
        page.push_str(&format!("<li><a href=\"{}{slash}\">{shown}{slash}</a>{length}</li>\n", encode(name)));
    }
    page.push_str("</ul>\n");
    if is_cut {
        page.push_str(&format!("<p>More than {MOST} entries: the rest is left out.</p>\n"));
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// A name as a segment of a path.
pub(crate) fn encode(name: &[u8]) -> String {
    // Bytes that are no UTF-8 have to come through too.
    name.utf8_chunks().fold(String::new(), |mut text, chunk| {
        text.extend(utf8_percent_encode(chunk.valid(), KEPT));
        text.extend(chunk.invalid().iter().map(|byte| format!("%{byte:02X}")));
        text
    })
}

/// Text as HTML, in elements and in quoted attributes.
fn escape(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, c| {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Name;

    fn line(name: &[u8], is_directory: bool) -> Line {
        Line { name: name.to_vec(), is_directory, length: (!is_directory).then_some(5) }
    }

    #[test]
    fn names_are_text_and_never_markup() {
        let page = render("/a<b/", vec![line(b"<script>&\"'.html", false), line(b"sub", true)], false);
        assert!(page.contains("<h1>/a&lt;b/</h1>"), "{page}");
        assert!(page.contains(">&lt;script&gt;&amp;&quot;&#39;.html</a> (5 bytes)"), "{page}");
        assert!(page.contains("href=\"%3Cscript%3E%26%22%27.html\""), "{page}");
        assert!(page.contains("<a href=\"sub/\">sub/</a>") && page.contains("href=\"../\""), "{page}");
        assert!(!render("/", Vec::new(), false).contains("../"));
        assert!(render("/", Vec::new(), true).contains("left out"));
    }

    proptest! {
        #[test]
        fn what_is_listed_is_found(name in proptest::collection::vec(0x20_u8..=0xFF, 1..30)) {
            let is_fit = name[0] != b'.' && !name.contains(&b'/') && !name.contains(&0x7F);
            if is_fit {
                let found = Name::parse(&format!("/{}", encode(&name))).unwrap();
                prop_assert_eq!(found.path(), name);
            }
        }
    }
}

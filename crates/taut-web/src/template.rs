//! Pages with the time in them. A file `NAME.tmpl.EXT` is served as `NAME.EXT`, with `{{time}}` replaced by the time
//! of the request; there is no other word, no expression, and nothing of what the client sends gets into a page.

use std::time::SystemTime;

/// Part of a template's name before its last ending.
const MARK: &str = ".tmpl";
/// What is replaced.
const TIME: &str = "{{time}}";
/// Longest template in bytes: a page is made in memory.
pub(crate) const LONGEST: u64 = 1 << 20;

/// The name of the template that a page of that name is made of.
pub(crate) fn source(page: &str) -> Option<String> {
    let (stem, ending) = page.rsplit_once('.')?;
    (!stem.is_empty() && !is_source(page)).then(|| format!("{stem}{MARK}.{ending}"))
}

/// The page that a template of that name makes.
pub(crate) fn page(source: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(source).ok()?;
    let (stem, ending) = text.rsplit_once('.')?;
    Some(format!("{}.{ending}", stem.strip_suffix(MARK).filter(|stem| !stem.is_empty())?).into_bytes())
}

/// Whether a name is one of a template, which is not served by that name.
pub(crate) fn is_source(name: &str) -> bool {
    page(name.as_bytes()).is_some()
}

/// Makes the page. The time is in UTC, as RFC 3339 has it (`2026-11-22T06:15:00Z`): digits, `-`,
/// `:`, `T` and `Z` need no escaping in any format. What is in braces otherwise stays as it is.
pub(crate) fn render(template: &[u8], now: SystemTime) -> Vec<u8> {
    let time = humantime::format_rfc3339_seconds(now).to_string();
    let mut page = Vec::with_capacity(template.len() + 32);
    let mut rest = template;
    while let Some(at) = rest.windows(TIME.len()).position(|window| window == TIME.as_bytes()) {
        page.extend_from_slice(&rest[..at]);
        page.extend_from_slice(time.as_bytes());
        rest = &rest[at + TIME.len()..];
    }
    page.extend_from_slice(rest);
    page
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn the_time_is_put_in_and_nothing_else() {
        let now = UNIX_EPOCH + Duration::from_secs(1_793_341_532);
        for (template, page) in [
            ("<p>{{time}}</p>", "<p>2026-10-30T06:25:32Z</p>"),
            ("{{time}}{{time}}", "2026-10-30T06:25:32Z2026-10-30T06:25:32Z"),
            ("{{ time }} {time} {{date}} $(date) `date`", "{{ time }} {time} {{date}} $(date) `date`"),
            ("{{{time}}}", "{2026-10-30T06:25:32Z}"),
            ("{{{{time}}", "{{2026-10-30T06:25:32Z"),
            ("", ""),
        ] {
            assert_eq!(render(template.as_bytes(), now), page.as_bytes(), "{template}");
        }
        assert_eq!(render(b"\xFF{{time}}\xFE", now), b"\xFF2026-10-30T06:25:32Z\xFE");
    }

    #[test]
    fn a_template_and_its_page_name_each_other() {
        assert_eq!(source("index.html").as_deref(), Some("index.tmpl.html"));
        assert_eq!(page(b"index.tmpl.html").as_deref(), Some(&b"index.html"[..]));
        for name in ["README", ".html", "index.tmpl.html"] {
            assert_eq!(source(name), None, "{name}");
        }
        for name in ["index.html", ".tmpl.html", "tmpl.html", "index.tmpl"] {
            assert!(!is_source(name), "{name}");
        }
    }
}

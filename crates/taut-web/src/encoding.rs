//! Files that were compressed beforehand, beside the ones they were made of (RFC 9110, section 12.5.3).

use hyper::header::{ACCEPT_ENCODING, HeaderMap};

/// A content coding and the ending of its files.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Coding {
    /// Its name in `Content-Encoding`.
    pub(crate) name: &'static str,
    /// What is added to the name of the file.
    pub(crate) ending: &'static str,
}

/// The best first, as texts usually turn out.
pub(crate) const CODINGS: [Coding; 3] = [
    Coding { name: "br", ending: ".br" },
    Coding { name: "zstd", ending: ".zst" },
    Coding { name: "gzip", ending: ".gz" },
];

/// How much a client likes a coding, in thousandths; 0 is not at all.
pub(crate) struct Accepted(Option<Vec<(String, u16)>>);

impl Accepted {
    pub(crate) fn of(fields: &HeaderMap) -> Self {
        if !fields.contains_key(ACCEPT_ENCODING) {
            return Self(None);
        }
        let values = fields.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        Self(Some(values.flat_map(|text| text.split(',')).filter_map(preference).collect()))
    }

    /// The weight of a coding. A client that says nothing gets what every client understands.
    pub(crate) fn weight(&self, coding: Coding) -> u16 {
        let Some(list) = &self.0 else { return 0 };
        let alias = if coding.name == "gzip" { "x-gzip" } else { coding.name };
        let of = |name: &str| list.iter().find(|(named, _)| named == name).map(|&(_, weight)| weight);
        of(coding.name).or_else(|| of(alias)).or_else(|| of("*")).unwrap_or(0)
    }

    /// The weight of no coding, which is accepted unless it is refused by name or with everything that is not named.
    pub(crate) fn identity(&self) -> u16 {
        let Some(list) = &self.0 else { return 1000 };
        let of = |name: &str| list.iter().find(|(named, _)| named == name).map(|&(_, weight)| weight);
        // Not named, it comes behind everything that is.
        of("identity").or_else(|| of("*").filter(|&weight| weight == 0)).unwrap_or(1)
    }
}

/// `gzip;q=0.5`; `None` where it can't be read.
fn preference(text: &str) -> Option<(String, u16)> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?.to_ascii_lowercase();
    let weight = match parts.next() {
        None => 1000,
        Some(parameter) => {
            let (key, value) = parameter.split_once('=')?;
            let value: f64 = value.trim().parse().ok().filter(|value| (0.0..=1.0).contains(value))?;
            // In range as checked.
            key.trim().eq_ignore_ascii_case("q").then_some((value * 1000.0).round() as u16)?
        }
    };
    Some((name, weight))
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn weights_are_as_the_client_has_them() {
        let [br, zstd, gzip] = CODINGS;
        for (field, weights, identity) in [
            (None, [0, 0, 0], 1000),
            (Some(""), [0, 0, 0], 1),
            (Some("gzip, deflate, br, zstd"), [1000, 1000, 1000], 1),
            (Some("gzip;q=0.5, BR ; Q=0.8"), [800, 0, 500], 1),
            (Some("*"), [1000, 1000, 1000], 1),
            (Some("*;q=0"), [0, 0, 0], 0),
            (Some("identity;q=0, gzip"), [0, 0, 1000], 0),
            (Some("identity, gzip;q=0.2"), [0, 0, 200], 1000),
            (Some("x-gzip"), [0, 0, 1000], 1),
            (Some("br;q=nan, gzip;q=2, zstd;level=1"), [0, 0, 0], 1),
        ] {
            let mut fields = HeaderMap::new();
            if let Some(text) = field {
                fields.insert(ACCEPT_ENCODING, HeaderValue::from_static(text));
            }
            let accepted = Accepted::of(&fields);
            assert_eq!([br, zstd, gzip].map(|coding| accepted.weight(coding)), weights, "{field:?}");
            assert_eq!(accepted.identity(), identity, "{field:?}");
        }
    }
}

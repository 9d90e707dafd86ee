use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The media type of a file, by the ending of its name. Texts are said to be UTF-8: browsers guess
/// else, each in its own way.
pub(crate) fn media_type(name: &[u8]) -> String {
    let Some(guess) = mime_guess::from_path(Path::new(OsStr::from_bytes(name))).first() else {
        return "application/octet-stream".to_owned();
    };
    match guess.essence_str() {
        // RFC 9239 made it a text.
        "application/javascript" => "text/javascript; charset=utf-8".to_owned(),
        text if guess.type_() == mime_guess::mime::TEXT => format!("{text}; charset=utf-8"),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_those_of_the_register() {
        for (name, media) in [
            ("index.html", "text/html; charset=utf-8"),
            ("a.CSS", "text/css; charset=utf-8"),
            ("a.js", "text/javascript; charset=utf-8"),
            ("a.mjs", "text/javascript; charset=utf-8"),
            ("a.txt", "text/plain; charset=utf-8"),
            ("a.md", "text/markdown; charset=utf-8"),
            ("a.json", "application/json"),
            ("a.svg", "image/svg+xml"),
            ("a.png", "image/png"),
            ("a.webp", "image/webp"),
            ("a.wasm", "application/wasm"),
            ("a.woff2", "font/woff2"),
            ("a.pdf", "application/pdf"),
            ("a.tar.gz", "application/gzip"),
            ("README", "application/octet-stream"),
            ("a.unheard-of", "application/octet-stream"),
        ] {
            assert_eq!(media_type(name.as_bytes()), media, "{name}");
        }
    }
}

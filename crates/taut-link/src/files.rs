use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The bytes of a file that is meant to be short, such as a configuration or a password.
///
/// # Errors
/// When it can't be read, or has more than `most` bytes; of a device without an end no more is read than that.
pub fn read_short(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {most} bytes")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_is_refused_even_without_an_end() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let bytes = std::fs::read(&file).unwrap();
        let length = bytes.len() as u64;
        assert_eq!(read_short(&file, length).unwrap(), bytes);
        let error = read_short(&file, length - 1).unwrap_err().to_string();
        assert!(error.contains(&format!("longer than {} bytes", length - 1)), "{error}");
        assert_eq!(read_short(Path::new("/dev/zero"), 1 << 10).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_short(Path::new("/dev/null"), 0).unwrap(), b"");
    }
}

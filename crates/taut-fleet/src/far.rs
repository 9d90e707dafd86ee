use std::str::FromStr;

use crate::error::Error;

/// How a command gets to a host: `ssh {host}`, `kubectl exec -i {host} --`.
///
/// The text is split into words as a shell does it, then `{host}` is replaced within each. No shell sees the name, so
/// it is always data, whatever is in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Via {
    words: Vec<String>,
}

const PLACE: &str = "{host}";

impl Via {
    /// The words of a command on this host.
    pub fn line(&self, host: &str, command: &[String]) -> Vec<String> {
        self.words.iter().map(|word| word.replace(PLACE, host)).chain(command.iter().cloned()).collect()
    }
}

impl FromStr for Via {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let words = shlex::split(text).ok_or_else(|| Error::new(format!("`{text}`: a quote or a \\ is not closed")))?;
        if words.first().is_none_or(String::is_empty) {
            return Err(Error::new("write a command such as 'ssh {host}'"));
        }
        if !words.iter().any(|word| word.contains(PLACE)) {
            let text = format!("`{text}` has no {PLACE} in it, so every host would be the same: write 'ssh {PLACE}'");
            return Err(Error::new(text));
        }
        if words.iter().any(|word| word.contains('\0')) {
            return Err(Error::new("no word of a command has a NUL in it"));
        }
        Ok(Self { words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_data_whatever_is_in_it() {
        let via: Via = r#"ssh -o 'Batch Mode=yes' "ops@{host}" x{host}{host}"#.parse().unwrap();
        let words = via.line("a b;$(c)'{host}", &["taut".to_owned(), "{host}".to_owned()]);
        let name = "a b;$(c)'{host}";
        let (login, twice) = (format!("ops@{name}"), format!("x{name}{name}"));
        assert_eq!(words, ["ssh", "-o", "Batch Mode=yes", login.as_str(), twice.as_str(), "taut", "{host}"]);
        for wrong in ["", "ssh", "'ssh {host}", "'' {host}", "ssh {host}\\"] {
            assert!(wrong.parse::<Via>().is_err(), "{wrong}");
        }
    }
}

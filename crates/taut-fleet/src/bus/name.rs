//! Names of hosts as parts of subjects and keys, where most characters mean something or are not allowed.

use std::fmt::Write as _;

/// Letters, digits and `-` as they are, and each other byte as `=2E`. No two names have the same.
pub(super) fn token(name: &str) -> String {
    let mut token = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'-' {
            token.push(char::from(byte));
        } else {
            // A String takes all that is written to it.
            let _ = write!(token, "={byte:02X}");
        }
    }
    token
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn odd_names_are_one_token() {
        assert_eq!(token("db1.example"), "db1=2Eexample");
        assert_eq!(token("a *>$x"), "a=20=2A=3E=24x");
    }

    proptest! {
        #[test]
        fn no_two_names_have_the_same(one in "\\PC{0,12}", other in "\\PC{0,12}") {
            prop_assert_eq!(one == other, token(&one) == token(&other));
            prop_assert!(token(&one).bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-=".contains(&byte)));
        }
    }
}

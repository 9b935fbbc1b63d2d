//! The token that authorizes changes at the admin address.

use std::{fmt, fs::File, io::Read, path::Path};

use subtle::ConstantTimeEq;

/// Fewest characters. A shorter token could be guessed.
const LEAST_CHARACTERS: usize = 32;
/// Most bytes. A longer file is not a token.
const MOST_BYTES: u64 = 4096;

/// The token. It is never displayed.
pub(crate) struct Token(Box<[u8]>);

impl Token {
    /// Reads the token. Blocks.
    ///
    /// # Errors
    /// The problem with the file, without any of its content.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_string(&mut text));
        read.map_err(|error| format!("cannot be read: {error}"))?;
        if text.len() as u64 > MOST_BYTES {
            return Err(format!("is no token: it has more than {MOST_BYTES} bytes"));
        }
        let token = text.trim();
        if token.chars().count() < LEAST_CHARACTERS {
            return Err(format!(
                "must hold a token of at least {LEAST_CHARACTERS} characters; make one with: openssl rand -hex 32"
            ));
        }
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(
                "must hold one token of letters, digits and signs, without spaces; make one with: openssl rand -hex 32"
                    .to_owned(),
            );
        }
        Ok(Self(token.as_bytes().into()))
    }

    /// Compares in a time that does not reveal where the values differ.
    pub(crate) fn is(&self, given: &[u8]) -> bool {
        self.0.ct_eq(given).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Token, String> {
        let directory = tempfile::TempDir::new().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, text).unwrap();
        Token::read(&path)
    }

    #[test]
    fn a_token_is_itself_and_nothing_else() {
        let token = read("  0123456789abcdef0123456789abcdef\n").unwrap();
        assert!(token.is(b"0123456789abcdef0123456789abcdef"));
        for other in ["", "0123456789abcdef0123456789abcdeF", "0123456789abcdef0123456789abcdef0"] {
            assert!(!token.is(other.as_bytes()), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token");
    }

    #[test]
    fn a_file_without_a_good_token_is_refused_and_not_told() {
        let long = "x".repeat(5000);
        for bad in ["", "short-secret", "0123456789abcdef 0123456789abcdef", &long] {
            let error = read(bad).unwrap_err();
            assert!(bad.is_empty() || !error.contains(bad), "{error}");
        }
        assert!(Token::read(Path::new("/nowhere/token")).is_err_and(|error| error.starts_with("cannot be read: ")));
    }
}

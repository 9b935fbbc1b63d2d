//! `serpent key LEVEL`: a line for the file of keys, and the key that it stands for.

use std::io::{self, Read as _};

use aws_lc_rs::rand;
use clap::Args;
use server::classify::keys;

use crate::{failure::Failure, values};

/// The key to make.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  serpent key gold >> /etc/serpent/keys
  serpent key gold --from-stdin < key.txt >> /etc/serpent/keys")]
pub struct KeyArgs {
    /// Level of the key, by which rules tell keys apart
    #[arg(value_name = "LEVEL", value_parser = values::name)]
    pub level: String,

    /// Take the key from standard input instead of making one
    #[arg(long)]
    pub from_stdin: bool,
}

/// Random bytes of a key. It cannot be guessed, not even with its hash.
const RANDOM_BYTES: usize = 32;

/// Shortest accepted key. A shorter one could be found from its hash by trying.
const SHORTEST: usize = 16;

/// A new line for the file of keys.
#[derive(Debug, PartialEq, Eq)]
pub struct NewKey {
    /// The line for the file, to standard output.
    pub line: String,
    /// The key, shown only once, to standard error; `None` if it was given.
    pub key: Option<String>,
}

/// Makes a key, or takes the one on standard input.
pub fn key(args: &KeyArgs) -> Result<NewKey, Failure> {
    if !args.from_stdin {
        let mut random = [0; RANDOM_BYTES];
        rand::fill(&mut random).map_err(|_| Failure::Run("the system gives no random numbers".to_owned()))?;
        let key = hex(&random);
        return Ok(NewKey { line: line(&args.level, &key), key: Some(key) });
    }
    let mut given = String::new();
    io::stdin()
        .lock()
        .take(64 * 1024)
        .read_to_string(&mut given)
        .map_err(|error| Failure::Run(format!("standard input cannot be read: {error}")))?;
    let key = checked(given.strip_suffix('\n').unwrap_or(&given)).map_err(Failure::Usage)?;
    Ok(NewKey { line: line(&args.level, key), key: None })
}

fn checked(given: &str) -> Result<&str, String> {
    let key = given.strip_suffix('\r').unwrap_or(given);
    if key.chars().any(|c| !c.is_ascii_graphic()) {
        return Err("a key is one word of printable ASCII: that is what a header can carry".to_owned());
    }
    if key.len() < SHORTEST {
        return Err(format!(
            "the key has {} characters: with fewer than {SHORTEST} it can be found from its hash by trying; leave out \
             --from-stdin to have one made",
            key.len()
        ));
    }
    Ok(key)
}

fn line(level: &str, key: &str) -> String {
    format!("{level} {}\n", keys::hash(key.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_the_level_and_the_hash() {
        // From `printf 0123456789abcdef | sha256sum`.
        let hash = "9f9f5111f7b27a781f1f1ddde5ebc2dd2b796bfc7365c9c28b548e564176929f";
        assert_eq!(line("gold", "0123456789abcdef"), format!("gold {hash}\n"));
    }

    #[test]
    fn keys_are_long_and_never_twice_the_same() {
        let make = || key(&KeyArgs { level: "gold".into(), from_stdin: false }).ok().and_then(|made| made.key).unwrap();
        let (a, b) = (make(), make());
        assert_eq!((a.len(), b.len()), (64, 64));
        assert_ne!(a, b);
        assert!(checked(&a).is_ok());
    }

    #[test]
    fn a_key_of_ones_own_is_one_long_word() {
        assert_eq!(checked("0123456789abcdef\r"), Ok("0123456789abcdef"));
        for (given, part) in [("short", "5 characters"), ("", "0 characters"), ("two words of a key", "one word")] {
            assert!(checked(given).unwrap_err().contains(part), "{given}");
        }
    }
}

//! Parts of a run, so that many machines do it together: `--shard I/N`.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A part of a run: every `of`-th pair of a point and a seed, with all its subjects, so that one machine measures all
/// that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// The part, from 0.
    pub index: u32,
    /// Number of parts.
    pub of: u32,
}

impl Shard {
    /// Whether a pair of a point and a seed belongs to the part, by its number from 0.
    pub fn has(self, pair: usize) -> bool {
        pair % self.of as usize == self.index as usize
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(index, of)| Some((index.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((index, of)) if index < of => Ok(Self { index, of }),
            _ => {
                Err(format!("`{text}` is no part: write I/N with I from 0 to N - 1, as in `0/4` for the first of four"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_and_shown() {
        assert_eq!("0/4".parse(), Ok(Shard { index: 0, of: 4 }));
        assert_eq!("3/4".parse::<Shard>().unwrap().to_string(), "3/4");
        for bad in ["", "4/4", "-1/4", "1", "1/0", "a/b", "1/4/2"] {
            assert!(bad.parse::<Shard>().unwrap_err().contains("I/N"), "{bad}");
        }
    }
}

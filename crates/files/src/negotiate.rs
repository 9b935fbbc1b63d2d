//! Chooses the representation for a client: the file itself, or a precompressed sibling (RFC 9110, section
//! 12.5.3).
//!
//! The coding with the highest q-value wins. Among equals the smallest representation wins, because the
//! uplink has to carry its bytes. The file itself is chosen only if the client ranks `identity` above every
//! existing coding or accepts none of them: a sibling is meant to be used. A client that refuses everything,
//! `identity` included, gets the file itself. The RFC allows this, and it helps more than a 406.

use http::{HeaderMap, HeaderValue, header};

/// A content coding that siblings may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// None: the body as it is.
    Identity,
    /// Brotli.
    Brotli,
    /// Zstandard.
    Zstd,
    /// gzip.
    Gzip,
}

impl Coding {
    /// The number of codings.
    pub const COUNT: usize = 4;

    /// All codings; `ALL[coding.index()] == coding`.
    pub const ALL: [Self; Self::COUNT] = [Self::Identity, Self::Brotli, Self::Zstd, Self::Gzip];

    /// Position in tables by coding.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The suffix of a sibling's name; empty for the file itself.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Identity => "",
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }

    /// The value of `Content-Encoding`.
    pub fn header(self) -> Option<HeaderValue> {
        match self {
            Self::Identity => None,
            Self::Brotli => Some(HeaderValue::from_static("br")),
            Self::Zstd => Some(HeaderValue::from_static("zstd")),
            Self::Gzip => Some(HeaderValue::from_static("gzip")),
        }
    }
}

/// The q-values of `Accept-Encoding` for each coding, in thousandths; `None` if a coding is not mentioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Preferences {
    quality: [Option<u16>; Coding::COUNT],
}

impl Preferences {
    /// Parses the header. Malformed members are skipped.
    pub fn parse(headers: &HeaderMap) -> Self {
        let mut quality = [None; Coding::COUNT];
        let mut others = None;
        for value in headers.get_all(header::ACCEPT_ENCODING) {
            for member in value.as_bytes().split(|byte| *byte == b',') {
                let mut parts = member.split(|byte| *byte == b';');
                let name = parts.next().unwrap_or_default().trim_ascii();
                let Some(q) = parse_quality(parts) else { continue };
                let known = match name {
                    b"*" => {
                        others = Some(q);
                        continue;
                    }
                    name if name.eq_ignore_ascii_case(b"identity") => Coding::Identity,
                    name if name.eq_ignore_ascii_case(b"br") => Coding::Brotli,
                    name if name.eq_ignore_ascii_case(b"zstd") => Coding::Zstd,
                    name if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") => Coding::Gzip,
                    _ => continue,
                };
                quality[known.index()] = Some(q);
            }
        }
        if others.is_some() {
            for (coding, q) in Coding::ALL.iter().zip(&mut quality) {
                // `*` applies to identity only as a refusal: otherwise it asks for any real coding.
                if q.is_none() && (*coding != Coding::Identity || others == Some(0)) {
                    *q = others;
                }
            }
        }
        Self { quality }
    }

    /// Chooses among the existing codings, given their sizes in bytes. The file itself always exists.
    pub fn choose(&self, sizes: [Option<u64>; Coding::COUNT]) -> Coding {
        let identity = self.quality[Coding::Identity.index()].unwrap_or(0);
        let mut best: Option<(u16, u64, Coding)> = None;
        for coding in [Coding::Brotli, Coding::Zstd, Coding::Gzip] {
            let (Some(q), Some(size)) = (self.quality[coding.index()], sizes[coding.index()]) else { continue };
            let better = match best {
                None => true,
                Some((best_q, best_size, _)) => q > best_q || (q == best_q && size < best_size),
            };
            if q > 0 && q >= identity && better {
                best = Some((q, size, coding));
            }
        }
        best.map_or(Coding::Identity, |(_, _, coding)| coding)
    }
}

/// The weight among a member's parameters, in thousandths; 1000 without one, `None` if it is malformed.
pub(crate) fn parse_quality<'a>(mut parameters: impl Iterator<Item = &'a [u8]>) -> Option<u16> {
    let Some(weight) = parameters.find_map(|parameter| {
        let parameter = parameter.trim_ascii();
        parameter.strip_prefix(b"q=").or_else(|| parameter.strip_prefix(b"Q="))
    }) else {
        return Some(1000);
    };
    let (whole, fraction) = match weight {
        [whole @ (b'0' | b'1')] | [whole @ (b'0' | b'1'), b'.'] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', fraction @ ..] if fraction.len() <= 3 => (whole, fraction),
        _ => return None,
    };
    let mut thousandths = u16::from(whole - b'0') * 1000;
    for (digit, scale) in fraction.iter().zip([100, 10, 1]) {
        if !digit.is_ascii_digit() {
            return None;
        }
        thousandths += u16::from(digit - b'0') * scale;
    }
    (thousandths <= 1000).then_some(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(accept: &[&'static str], sizes: [Option<u64>; Coding::COUNT]) -> Coding {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
        }
        Preferences::parse(&headers).choose(sizes)
    }

    const ALL_THERE: [Option<u64>; 4] = [Some(1000), Some(300), Some(320), Some(400)];

    #[test]
    fn the_highest_quality_wins_then_the_smallest() {
        assert_eq!(chosen(&["gzip, deflate, br, zstd"], ALL_THERE), Coding::Brotli);
        assert_eq!(chosen(&["gzip, br, zstd"], [Some(9), Some(5), Some(4), Some(6)]), Coding::Zstd);
        assert_eq!(chosen(&["br;q=0.5, gzip;q=0.8"], ALL_THERE), Coding::Gzip);
        assert_eq!(chosen(&["br;q=0.999, zstd;q=1.000"], ALL_THERE), Coding::Zstd);
        assert_eq!(chosen(&["GZIP"], ALL_THERE), Coding::Gzip);
        assert_eq!(chosen(&["x-gzip"], ALL_THERE), Coding::Gzip);
        assert_eq!(chosen(&["br;q=0.1", "gzip"], ALL_THERE), Coding::Gzip, "several header lines are one list");
    }

    #[test]
    fn only_what_is_accepted_and_there_is_chosen() {
        assert_eq!(chosen(&[], ALL_THERE), Coding::Identity);
        assert_eq!(chosen(&[""], ALL_THERE), Coding::Identity);
        assert_eq!(chosen(&["deflate"], ALL_THERE), Coding::Identity);
        assert_eq!(chosen(&["br;q=0"], ALL_THERE), Coding::Identity);
        assert_eq!(chosen(&["br"], [Some(1000), None, None, Some(400)]), Coding::Identity);
        assert_eq!(chosen(&["br, gzip;q=0.1"], [Some(1000), None, None, Some(400)]), Coding::Gzip);
    }

    #[test]
    fn the_asterisk_speaks_for_what_is_not_named() {
        assert_eq!(chosen(&["*"], ALL_THERE), Coding::Brotli);
        assert_eq!(chosen(&["br;q=0, *"], ALL_THERE), Coding::Zstd);
        assert_eq!(chosen(&["gzip, *;q=0"], ALL_THERE), Coding::Gzip);
        assert_eq!(chosen(&["*;q=0"], ALL_THERE), Coding::Identity, "the file itself rather than a 406");
    }

    #[test]
    fn identity_is_chosen_when_ranked_above() {
        assert_eq!(chosen(&["identity, gzip;q=0.5"], ALL_THERE), Coding::Identity);
        assert_eq!(chosen(&["identity;q=0.5, gzip"], ALL_THERE), Coding::Gzip);
        assert_eq!(chosen(&["identity, gzip"], ALL_THERE), Coding::Gzip);
        assert_eq!(chosen(&["gzip;q=0.001"], ALL_THERE), Coding::Gzip);
        assert_eq!(chosen(&["identity;q=0, gzip;q=0.5"], ALL_THERE), Coding::Gzip);
    }

    #[test]
    fn malformed_weights_are_skipped() {
        for accept in ["gzip;q=2", "gzip;q=1.001", "gzip;q=0.1234", "gzip;q=x", "gzip;q=-1", "gzip;q=", "gzip;q=0.x"] {
            assert_eq!(chosen(&[accept], ALL_THERE), Coding::Identity, "{accept}");
        }
        assert_eq!(chosen(&["gzip ; q=0.3"], ALL_THERE), Coding::Gzip);
        assert_eq!(chosen(&["gzip;q=1."], ALL_THERE), Coding::Gzip);
    }
}

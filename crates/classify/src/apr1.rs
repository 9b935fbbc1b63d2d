//! `$apr1$`: MD5 in a thousand rounds, the format of Apache's `htpasswd` before bcrypt (`apr_md5_encode`).

use md5::{Digest, Md5};

const ROUNDS: u32 = 1000;
const MAGIC: &[u8] = b"$apr1$";
const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Most characters of a salt.
pub(crate) const SALT_LEN: usize = 8;
/// Characters of a sum.
pub(crate) const SUM_LEN: usize = 22;

/// The sum of a password, in the form written behind the salt.
pub(crate) fn sum(password: &[u8], salt: &[u8]) -> [u8; SUM_LEN] {
    let first = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut start = Md5::new().chain_update(password).chain_update(MAGIC).chain_update(salt);
    let mut left = password.len();
    while left > 0 {
        start.update(&first[..left.min(16)]);
        left = left.saturating_sub(16);
    }
    let mut bits = password.len();
    while bits > 0 {
        // The original takes the first byte of a buffer that it has just cleared.
        start.update(if bits & 1 == 1 { &[0][..] } else { &password[..1] });
        bits >>= 1;
    }
    let mut digest = start.finalize();
    for round in 0..ROUNDS {
        let mut next = Md5::new();
        if round % 2 == 1 {
            next.update(password)
        } else {
            next.update(digest)
        }
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        if round % 2 == 1 {
            next.update(digest)
        } else {
            next.update(password)
        }
        digest = next.finalize();
    }
    let mut sum = [0; SUM_LEN];
    let mut at = 0;
    let mut write = |high: u8, middle: u8, low: u8, characters: usize| {
        let mut value = u32::from_be_bytes([0, high, middle, low]) as usize;
        for _ in 0..characters {
            sum[at] = ALPHABET[value & 63];
            value >>= 6;
            at += 1;
        }
    };
    for (high, middle, low) in [(0, 6, 12), (1, 7, 13), (2, 8, 14), (3, 9, 15), (4, 10, 5)] {
        write(digest[high], digest[middle], digest[low], 4);
    }
    write(0, 0, digest[11], 2);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with `openssl passwd -apr1 -salt SALT PASSWORD`.
    #[test]
    fn sums_are_those_of_apache() {
        for (password, salt, expected) in VECTORS {
            let made = sum(password.as_bytes(), salt.as_bytes());
            assert_eq!(std::str::from_utf8(&made), Ok(*expected), "{password} {salt}");
        }
    }

    const VECTORS: &[(&str, &str, &str)] = &[
        ("secret", "abcdefgh", "h9FWgUz3n9YxylKLlR5SQ/"),
        ("", "saltsalt", "a8ml/vK5HEjiZ5oypDWA7/"),
        ("pässword", "x", "lno.1LAU4npXLh2DVYU9r0"),
        ("0123456789abcdef", "./ABCxyz", "aqZDjM9QAcOjIEV07FN591"),
        ("a password of more than thirty-two characters: yes", "Zz09./aa", "MpjVPWwItmQ2oJNnSf2ry0"),
    ];
}

//! The words of the server to the classifier of `serpent attach`, which keeps the order in kernel mode.

#[cfg(target_os = "linux")]
pub use attach::{Measure, ResponseRank, TellError, Teller};

#[cfg(not(target_os = "linux"))]
pub use self::elsewhere::{Measure, ResponseRank, TellError, Teller};

/// Other systems have no such classifier.
#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::{fmt, io};

    /// Never made.
    #[derive(Debug)]
    pub enum Teller {}

    /// The system has no classifier.
    #[derive(Debug)]
    pub struct TellError;

    /// The measure by which a response is ranked.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Measure {
        /// So many bytes are left.
        Left(u64),
        /// So many bytes were sent before.
        Sent(u64),
    }

    /// The rank of the response that a connection sends from an offset on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ResponseRank {
        /// The bytes by which it is ranked.
        pub measure: Measure,
        /// Bytes that the connection has sent before.
        pub offset: u64,
        /// The number of the response's class.
        pub class: u8,
        /// Classes in strict order.
        pub classes: u8,
        /// Whether this is the first word of its response.
        pub is_new: bool,
    }

    impl Teller {
        /// Always an error.
        pub fn find(_: Option<&str>) -> Result<Self, TellError> {
            Err(TellError)
        }

        /// Never called.
        pub fn tell<S>(&self, _: S, _: &[ResponseRank]) -> io::Result<()> {
            match *self {}
        }
    }

    impl fmt::Display for TellError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("it needs Linux; use `enforce = \"server\"`")
        }
    }
}

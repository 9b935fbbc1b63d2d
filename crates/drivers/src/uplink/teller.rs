//! The words of the server to the classifier of `serpent attach`, which keeps the order in kernel mode.

#[cfg(target_os = "linux")]
pub use attach::{Measure, TellError, Teller, Told};

#[cfg(not(target_os = "linux"))]
pub use self::elsewhere::{Measure, TellError, Teller, Told};

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

    /// What a response is ranked by.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Measure {
        /// So many bytes are left.
        Left(u64),
        /// So many bytes were sent before.
        Sent(u64),
    }

    /// The response that a connection sends from a place on.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Told {
        /// How the response is ranked.
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
        pub fn tell<S>(&self, _: S, _: &[Told]) -> io::Result<()> {
            match *self {}
        }
    }

    impl fmt::Display for TellError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("it needs Linux; use `enforce = \"server\"`")
        }
    }
}

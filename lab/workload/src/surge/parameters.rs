//! The parameters of SURGE, and what makes them invalid.

use std::fmt;

use rand_chacha::ChaCha12Rng;
use serde::{Deserialize, Serialize};

use super::law::{LogNormal, Pareto, Weibull};
use crate::sizes::HeavyTail;

/// SURGE's parameters. The defaults are those of "Implementation of a New Scheduling Policy in Web Servers",
/// table 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Surge {
    /// Sizes of the files, in bytes, below the tail.
    pub body_bytes: LogNormal,
    /// Sizes of the files in the tail, in bytes, from its scale on. The tail has the fraction of files that
    /// the body has above that size. (The table's scale of 1333K is a misprint for 133K: it exceeds nearly
    /// all sizes in the text.)
    pub tail_bytes: Pareto,
    /// The smallest file, in bytes.
    pub min_bytes: u64,
    /// The largest file, in bytes.
    pub max_bytes: u64,
    /// Sizes of the requests, in bytes, up to the largest file.
    pub request_bytes: Pareto,
    /// Zipf's exponent: the popularity of the file of rank r is proportional to r to minus this.
    pub popularity_exponent: f64,
    /// Stack distance: the number of different files requested since the last request for a file, itself
    /// included.
    pub stack_distance: LogNormal,
    /// Time between the answer to one file of a page and the request for the next, in seconds.
    ///
    /// The table gives a scale of 1.46 and a shape of 0.382, which have a mean of 5.5 s; see
    /// [`Surge::ACTIVE_OFF_SWAPPED`].
    pub active_off_s: Weibull,
    /// Time between the last answer of a page and the request for the next page, in seconds.
    pub inactive_off_s: Pareto,
    /// Embedded references of a page: the draw without its fraction. With the default a page has at least
    /// one, and at least n with probability n to the -2.43.
    pub embedded: Pareto,
}

impl Surge {
    /// The table's active OFF times with scale and shape exchanged: mean 0.35 s.
    ///
    /// Active OFF times were told from inactive ones by being shorter than a second. With the table as
    /// printed, 42 % of them are longer; with the parameters exchanged, 1.7 % are. The difference matters.
    /// With the table's files and pages, 120 users with answers within 0.2 s request 2.0 Mbit/s as printed
    /// and 5.4 Mbit/s exchanged. In the text they saturate 10 Mbit/s.
    pub const ACTIVE_OFF_SWAPPED: Weibull = Weibull { scale: 0.382, shape: 1.46 };

    /// Checks whether a site and its users can be made with these parameters.
    ///
    /// # Errors
    ///
    /// The first parameter that is out of range.
    pub fn check(&self) -> Result<(), SurgeError> {
        let positive = |name, value: f64| {
            // NaN fails this form of the test.
            if value > 0.0 && value < 1e15 { Ok(()) } else { Err(SurgeError::NotPositive { name, value }) }
        };
        let log_normal = |name, law: &LogNormal| {
            let value = if law.mu.abs() < 50.0 { law.sigma } else { law.mu };
            if law.mu.abs() < 50.0 && law.sigma > 0.0 && law.sigma < 50.0 {
                Ok(())
            } else {
                Err(SurgeError::NotPositive { name, value })
            }
        };
        log_normal("body-bytes", &self.body_bytes)?;
        log_normal("stack-distance", &self.stack_distance)?;
        for (name, law) in [
            ("tail-bytes", &self.tail_bytes),
            ("request-bytes", &self.request_bytes),
            ("inactive-off-s", &self.inactive_off_s),
            ("embedded", &self.embedded),
        ] {
            positive(name, law.scale)?;
            positive(name, law.shape)?;
        }
        positive("active-off-s", self.active_off_s.scale)?;
        positive("active-off-s", self.active_off_s.shape)?;
        positive("popularity-exponent", self.popularity_exponent)?;
        if self.request_bytes.scale >= self.max_bytes as f64 {
            return Err(SurgeError::Requests { scale: self.request_bytes.scale, max_bytes: self.max_bytes });
        }
        file_sizes(self).map(|_| ())
    }

    /// Embedded references of one page.
    pub(crate) fn draw_embedded(&self, rng: &mut ChaCha12Rng) -> u32 {
        self.embedded.draw(rng) as u32
    }
}

impl Default for Surge {
    fn default() -> Self {
        Self {
            body_bytes: LogNormal { mu: 9.357, sigma: 1.318 },
            tail_bytes: Pareto { scale: 133_000.0, shape: 1.1 },
            min_bytes: 77,
            max_bytes: 3_000_000,
            request_bytes: Pareto { scale: 1000.0, shape: 1.0 },
            popularity_exponent: 1.0,
            stack_distance: LogNormal { mu: 1.5, sigma: 0.80 },
            active_off_s: Weibull { scale: 1.46, shape: 0.382 },
            inactive_off_s: Pareto { scale: 1.0, shape: 1.5 },
            embedded: Pareto { scale: 1.0, shape: 2.43 },
        }
    }
}

/// The law of the file sizes. The tail has the fraction that the lognormal body has above the tail's scale.
pub(super) fn file_sizes(surge: &Surge) -> Result<HeavyTail, SurgeError> {
    let knee = surge.tail_bytes.scale;
    HeavyTail::new(
        surge.min_bytes as f64,
        surge.body_bytes.mu.exp(),
        knee,
        surge.body_bytes.cdf(knee),
        surge.tail_bytes.shape,
        surge.max_bytes as f64,
    )
    .map_err(SurgeError::Sizes)
}

/// Invalid parameters of a site.
#[derive(Clone, Debug, PartialEq)]
pub enum SurgeError {
    /// A parameter is not above 0, or is too large.
    NotPositive {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: f64,
    },
    /// Bounds, body and tail of the file sizes do not fit together.
    Sizes(crate::sizes::SizesError),
    /// The smallest requested size is not below the largest file.
    Requests {
        /// Scale of the request sizes.
        scale: f64,
        /// The largest file.
        max_bytes: u64,
    },
    /// No files, or too many.
    Files(usize),
}

impl fmt::Display for SurgeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPositive { name, value } => {
                write!(
                    f,
                    "SURGE's `{name}` has a parameter of {value}: scales, shapes and sigmas are above 0 and moderate"
                )
            }
            Self::Sizes(error) => write!(f, "SURGE's files: {error}"),
            Self::Requests { scale, max_bytes } => write!(
                f,
                "SURGE's requests are for {scale} bytes and more, but no file is larger than {max_bytes}: \
                 lower `request-bytes`' scale or raise `max-bytes`"
            ),
            Self::Files(files) => write!(f, "a SURGE site of {files} files: give 1 to 20,000"),
        }
    }
}

impl std::error::Error for SurgeError {}

//! What is asked for: files, and the requests of a seed.

use workload::{
    demand::Demand,
    pattern::{Pattern, PatternError},
    rate::Link,
    sequence::{LoadMatch, Recipe, Request},
    sizes::{FileSet, HeavyTail},
    wire::WireModel,
};

use super::{Plan, refused};
use crate::{
    LabError,
    setting::{Accounting, DemandSetting, Intensity, Setting, SizesSetting},
};

/// What is asked for under a seed.
#[derive(Debug)]
pub struct Work {
    /// Sizes of the files to serve, by number.
    pub sizes_bytes: Vec<u64>,
    /// Who asks for which of them, and when.
    pub demand: Demand,
    /// What must be known to judge the measurement.
    pub notes: Vec<String>,
}

/// What is asked for, under any seed.
#[derive(Debug)]
pub(super) enum Source {
    /// Requests at moments decided before the run.
    Open { files: FileSet, pattern: Pattern, load_match: LoadMatch },
}

impl Source {
    pub(super) fn new(setting: &Setting, link: &Link, wire: &WireModel) -> Result<Self, LabError> {
        match &setting.demand {
            DemandSetting::Open { sizes, files, intensity } => {
                let files = file_set(sizes, *files)?;
                let (pattern, load_match) = match intensity {
                    Intensity::RequestsPerSecond(rate) => {
                        let bytes_per_second = rate * files.mean_of(|size| wire.bytes_for(size));
                        let load = bytes_per_second / link.first_rate().bytes_per_second();
                        let pattern = Pattern::constant(load).ok_or_else(|| {
                            refused(format!("`demand.requests-per-second` is {rate}: give a positive number"))
                        })?;
                        (pattern, LoadMatch::Expectation)
                    }
                    intensity => (pattern(intensity)?, setting.count.load_match),
                };
                Ok(Self::Open { files, pattern, load_match })
            }
            _ => Err(refused("later".to_owned())),
        }
    }

    pub(super) fn pattern(&self) -> Option<&Pattern> {
        match self {
            Self::Open { pattern, .. } => Some(pattern),
        }
    }
}

impl Plan {
    /// What is asked for under `seed`: the same at each call.
    pub fn work(&self, seed: u64) -> Result<Work, LabError> {
        let Source::Open { files, .. } = &self.source;
        let demand = Demand::sequence(self.requests(seed)?);
        Ok(Work { sizes_bytes: files.sizes_bytes().to_vec(), demand, notes: Vec::new() })
    }

    /// How many files there are to ask for.
    pub fn files_count(&self) -> usize {
        let Source::Open { files, .. } = &self.source;
        files.sizes_bytes().len()
    }

    /// The requests of a seed. An error where they are not decided before the run.
    pub fn requests(&self, seed: u64) -> Result<Vec<Request>, LabError> {
        match &self.source {
            Source::Open { files, pattern, load_match } => {
                let recipe = Recipe {
                    files,
                    link: &self.link,
                    pattern,
                    duration_ns: self.duration.as_nanos() as u64,
                    wire: match self.setting.count.accounting {
                        Accounting::Wire => self.wire,
                        Accounting::Body => WireModel::BODY_ONLY,
                    },
                    load_match: *load_match,
                };
                Ok(recipe.draw(seed))
            }
        }
    }
}

fn pattern(intensity: &Intensity) -> Result<Pattern, LabError> {
    match intensity {
        Intensity::Load(load) => Pattern::constant(*load)
            .ok_or_else(|| refused(format!("`demand.load` is {load}: a load is a positive number"))),
        Intensity::Pattern(text) => match text.strip_prefix('@') {
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .map_err(LabError::io(format!("`demand.pattern`: cannot read {file}")))?;
                text.trim().parse().map_err(|wrong: PatternError| refused(format!("{file}: {wrong}")))
            }
            None => text.parse().map_err(|wrong: PatternError| refused(format!("`demand.pattern`: {wrong}"))),
        },
        Intensity::RequestsPerSecond(_) => unreachable!(),
    }
}

fn file_set(sizes: &SizesSetting, files: usize) -> Result<FileSet, LabError> {
    match sizes {
        SizesSetting::WorldCup => Ok(FileSet::new(&HeavyTail::WORLD_CUP, files)),
        _ => Err(refused("later".to_owned())),
    }
}

#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod apr1;
mod blind;
mod classifier;
mod conditions;
mod config;
mod error;
mod explain;
mod facts;
mod filter;
mod forwarded;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod keys;
pub mod passwords;
mod path;
mod requirement;
mod sessions;
#[cfg(test)]
mod tests;

pub use self::{
    classifier::{Classified, Classifier, Verdict},
    config::{ClassifierConfig, Condition, KeysConfig, PathPattern, Rule, SessionConfig, ValueMatch},
    error::ClassifierError,
    explain::{ConditionExplained, Explanation, RuleExplained},
    facts::Facts,
    filter::Filter,
    path::{decoded_path, encoded_path},
    requirement::{Lacks, Met, Required, Requirement, Shown},
    sessions::{SECRET_BYTES, SessionEffect, SessionKeys},
};

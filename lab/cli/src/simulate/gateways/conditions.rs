//! The conditions of simulations with several gateways: flags, and the same in a file of results.

use std::fmt;

use clap::{Args, ValueEnum};
use scheduler::share::Policy;
use serde::{Deserialize, Serialize};

/// What is simulated.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conditions {
    /// Numbers of gateways
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 64], value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub gateways: Vec<u32>,

    /// Slots of the site
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub slots: u32,

    /// Loads: requested work over what the site can do; or `full`
    #[arg(long, value_name = "LOAD,...", value_delimiter = ',', default_value = "0.5,0.8,0.95,full", value_parser = load)]
    pub load: Vec<Load>,

    /// How classes share the slots
    #[arg(long, value_name = "SHARE", default_value = "weighted", value_parser = policy)]
    #[serde(serialize_with = "write_policy", deserialize_with = "read_policy")]
    pub share: Policy,

    /// Weights of the classes, the most important first; each has as many requests. Ratios of delays are their inverse
    #[arg(long, value_name = "WEIGHT,...", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub weights: Vec<u32>,

    /// To which gateways requests come
    #[arg(long, value_enum, default_value_t = Place::Even)]
    pub placement: Place,

    /// Mean time that the site works on a request, exponentially distributed
    #[arg(long, value_name = "MS", default_value_t = 20.0)]
    pub service_ms: f64,

    /// Mean time of a message to the store or from it
    #[arg(long, value_name = "MS", default_value_t = 0.25)]
    pub message_ms: f64,

    /// Part of the messages that is lost
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    pub loss: f64,

    /// Random faults: gateways that are cut off, stand still or are killed, and a store that is gone for a while
    #[arg(long)]
    pub faults: bool,

    /// Measured seconds, after 5 that are not
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub seconds: u64,

    /// Seeds
    #[arg(long, value_name = "SEED,...", value_delimiter = ',', default_value = "1,2,3")]
    pub seeds: Vec<u64>,
}

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Load {
    /// Requested work over what the site can do.
    Part(f64),
    /// Every gateway has waiting requests.
    Full,
}

/// To which gateways requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Place {
    /// To each alike
    Even,
    /// To the first most, to the second half of that, to the third a third
    Skewed,
    /// Those of a class to gateways of its own
    ByClass,
    /// To every other gateway, and to the others after a second, and so on
    Moving,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(load) => write!(f, "{load}"),
            Self::Full => f.write_str("full"),
        }
    }
}

fn load(text: &str) -> Result<Load, String> {
    match text.parse::<f64>() {
        _ if text == "full" => Ok(Load::Full),
        Ok(load) if load > 0.0 && load <= 10.0 => Ok(Load::Part(load)),
        _ => Err("give a number above 0 and up to 10, or `full`".to_owned()),
    }
}

fn policy(text: &str) -> Result<Policy, String> {
    let names = || Policy::ALL.map(Policy::name).join(", ");
    Policy::ALL.into_iter().find(|it| it.name() == text).ok_or_else(|| format!("it is one of {}", names()))
}

fn write_policy<S: serde::Serializer>(policy: &Policy, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(policy.name())
}

fn read_policy<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Policy, D::Error> {
    policy(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

impl TryFrom<String> for Load {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        load(&text)
    }
}

impl From<Load> for String {
    fn from(load: Load) -> Self {
        load.to_string()
    }
}

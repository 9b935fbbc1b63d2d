//! Files that a configuration names, read as they are at the start, and forgotten.

use std::path::PathBuf;

use crate::{
    admin::token::Token,
    classify::{Classifier, ClassifierError},
    config::Config,
    refusals::Refusals,
    tls,
};

/// The files that the server would refuse: those of classes, of the administrator's token, and of the authorities for
/// certificates of clients. Blocks.
pub fn unusable_files(config: &Config) -> Vec<ClassifierError> {
    let wrong = |path: &PathBuf, message: String| ClassifierError { path: path.clone(), message };
    let mut found = Vec::new();
    found.extend(Classifier::new(&config.classes).err());
    found.extend(Refusals::read(&config.classes).err());
    if let Some(path) = &config.admin_token {
        found.extend(Token::read(path).err().map(|message| wrong(path, message)));
    }
    for path in config.sites.iter().filter_map(|site| site.client_ca.as_ref()) {
        found.extend(tls::authorities(path).err().map(|message| wrong(path, message)));
    }
    found
}

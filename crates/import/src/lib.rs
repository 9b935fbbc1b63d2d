//! Configuration files of other servers, translated into Serpent's.
//!
//! [`nginx`] and [`caddyfile`] translate what has a counterpart, and name the rest: nothing is left out without a word.

#![forbid(unsafe_code)]

mod caddy;
mod draft;
mod nginx;
mod notes;
mod report;
mod syntax;

pub use report::{Left, Place};
pub use syntax::{Files, SyntaxError};

/// A translated configuration.
#[derive(Clone, Debug)]
pub struct Translated {
    /// A configuration file of Serpent.
    pub text: String,
    /// What it does not have, in the order of the files.
    pub left: Vec<Left>,
}

/// Translates `nginx.conf`, and the files that it includes.
///
/// # Errors
/// A file cannot be read, or is not written as nginx wants it.
pub fn nginx(file: &str, files: &dyn Files) -> Result<Translated, SyntaxError> {
    let (text, left) = nginx::all(&syntax::read(file, files)?);
    Ok(Translated { text, left })
}

/// Translates a Caddyfile, and the files that it imports.
///
/// # Errors
/// A file cannot be read, or is not written as Caddy wants it.
pub fn caddyfile(file: &str, files: &dyn Files) -> Result<Translated, SyntaxError> {
    let (text, left) = caddy::all(file, files)?;
    Ok(Translated { text, left })
}

/// The files of the access logs that `nginx.conf` and the files that it includes name, each once, in their order. Without one,
/// nginx writes where it was built to.
///
/// # Errors
/// A file cannot be read, or is not written as nginx wants it.
pub fn nginx_logs(file: &str, files: &dyn Files) -> Result<Vec<String>, SyntaxError> {
    fn collect(directives: &[syntax::Directive], found: &mut Vec<String>) {
        for directive in directives {
            let target = directive.arg(0);
            // Neither variables nor receivers of messages are files.
            let is_file = target.starts_with('/') && !target.starts_with("/dev/") && !target.contains('$');
            if directive.name == "access_log" && is_file && !found.iter().any(|known| known == target) {
                found.push(target.to_owned());
            }
            collect(directive.inner(), found);
        }
    }
    let mut found = Vec::new();
    collect(&syntax::read(file, files)?, &mut found);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Two;

    impl Files for Two {
        fn read(&self, pattern: &str) -> Result<Vec<(String, String)>, String> {
            let text = match pattern {
                "nginx.conf" => {
                    "http { access_log /var/log/a.log main; # access_log /no\n include b.conf; server { access_log off; } }"
                }
                "b.conf" => {
                    "server { access_log /var/log/b.log; location / { access_log /var/log/a.log; } }\n\
                     server { access_log syslog:server=[::1]; access_log /var/log/$host.log; access_log /dev/stdout; }"
                }
                _ => return Err(format!("{pattern} does not exist")),
            };
            Ok(vec![(pattern.to_owned(), text.to_owned())])
        }
    }

    #[test]
    fn the_logs_of_all_levels_and_files_are_found_once() {
        assert_eq!(nginx_logs("nginx.conf", &Two).unwrap(), ["/var/log/a.log", "/var/log/b.log"]);
        assert!(nginx_logs("c.conf", &Two).is_err());
    }
}

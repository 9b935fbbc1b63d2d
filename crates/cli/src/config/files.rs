//! Checks the files that the configuration names: directories, certificates, keys, programs, the folder of the access log.

use std::{ops::Range, os::unix::fs::PermissionsExt as _, path::Path, time::SystemTime};

use rustls::{InconsistentKeys, sign::CertifiedKey};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject as _},
};
use server::{
    config::{Certificate, CertificateFiles},
    upstream::Upstreams,
};

use super::{
    problems::{Problem, Severity},
    resolve::{FileKind, NamedFile, Resolved, SiteSpans},
    validity,
};

/// Adds a problem for everything that is missing or cannot be read.
pub fn check(resolved: &Resolved, problems: &mut Vec<Problem>) {
    for (site, spans) in resolved.config.sites.iter().zip(&resolved.site_spans) {
        if let Some(root) = &site.root {
            problems.extend(directory(root, spans.root.clone()));
        }
        if let Some(files) = site.certificate.as_ref().and_then(Certificate::files) {
            problems.extend(certificate(files, spans));
        }
    }
    for (path, what, place) in &resolved.log_files {
        problems.extend(log_file(path, what, place.clone()));
    }
    for (at, named) in resolved.named_files.iter().enumerate() {
        problems.extend(check_named_file(named, resolved.named_files.get(at + 1)));
    }
    if problems.iter().all(|problem| problem.severity == Severity::Warning) {
        problems.extend(contents(resolved));
    }
}

/// Problems with the contents of files. The server reads them here as it does when it starts.
fn contents(resolved: &Resolved) -> Vec<Problem> {
    let mut problems = Vec::new();
    for error in server::unusable_files(&resolved.config) {
        let place =
            resolved.named_files.iter().find(|named| named.path == error.path).and_then(|named| named.span.clone());
        problems.push(Problem::new(format!("`{}`: {}", error.path.display(), error.message), place));
    }
    if let Err(error) = Upstreams::new(&resolved.config.upstreams, &[]) {
        let at = resolved.config.upstreams.iter().position(|upstream| upstream.name == error.upstream);
        let place = at.and_then(|at| resolved.upstream_spans.get(at)).cloned().flatten();
        problems.push(Problem::new(format!("the upstream `{}`: {}", error.upstream, error.message), place));
    }
    problems
}

fn check_named_file(named: &NamedFile, next: Option<&NamedFile>) -> Option<Problem> {
    let NamedFile { path, span, kind } = named;
    match kind {
        FileKind::Authorities => authorities(path, span.clone()).err(),
        FileKind::Chain => {
            let key = next.filter(|next| next.kind == FileKind::Key)?;
            let files = CertificateFiles { chain: path.clone(), key: key.path.clone(), ocsp: None };
            let spans = SiteSpans { root: None, chain: span.clone(), key: key.span.clone() };
            certificate(&files, &spans).into_iter().next()
        }
        // It is checked together with its chain.
        FileKind::Key => None,
        FileKind::Secret(least) => secret(path, span.clone(), *least),
        FileKind::Hashes => regular(path, span.clone()).err().or_else(|| private(path, span.clone(), 0o007)),
        FileKind::Page => regular(path, span.clone()).err(),
        FileKind::Directory => directory(path, span.clone()),
        FileKind::Program => program(path, span.clone()),
        FileKind::Programs if path.is_dir() => directory(path, span.clone()),
        FileKind::Programs => program(path, span.clone()),
        FileKind::Scripts if path.is_dir() => directory(path, span.clone()),
        FileKind::Scripts => regular(path, span.clone()).err(),
    }
}

fn authorities(path: &Path, span: Option<Range<usize>>) -> Result<(), Problem> {
    pem(path, span, "certificate", |bytes| {
        let all = CertificateDer::pem_slice_iter(bytes).collect::<Result<Vec<_>, _>>()?;
        Ok(Some(()).filter(|()| !all.is_empty()))
    })
}

/// The size of a regular file that can be read.
fn regular(path: &Path, span: Option<Range<usize>>) -> Result<u64, Problem> {
    let file = path.display();
    match std::fs::File::open(path).and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.is_file() => Ok(metadata.len()),
        Ok(_) => Err(Problem::new(format!("`{file}` is not a file"), span).help("name a file")),
        Err(error) => Err(unreadable(path, span, &error)),
    }
}

fn secret(path: &Path, span: Option<Range<usize>>, least: u64) -> Option<Problem> {
    let text = path.as_os_str().to_string_lossy();
    // The path of a file in the file's folder, as settings are read.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match regular(path, span.clone()) {
        Err(_) if !path.exists() && name.len() >= 32 && !name.contains('.') && !text.contains("://") => Some(
            Problem::new("this is the name of a file, and looks like the secret itself", span)
                .help("write a new secret into a file that only the server reads, as from `(umask 077; openssl rand -hex 32 > secret)`, and name that file"),
        ),
        Err(problem) => Some(problem),
        Ok(bytes) if bytes < least => Some(
            Problem::new(format!("the secret in `{}` is too short: {bytes} bytes", path.display()), span)
                .help(format!("give at least {least} bytes, as from `openssl rand -hex 32`")),
        ),
        Ok(_) => private(path, span, 0o077),
    }
}

/// Warns if the permissions let other users read the file. `forbidden` holds the bits that must not be set.
fn private(path: &Path, span: Option<Range<usize>>, forbidden: u32) -> Option<Problem> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    let (who, command) = match forbidden {
        0o077 => ("others than its owner", "chmod 600"),
        _ => ("everybody on this machine", "chmod o="),
    };
    (mode & forbidden != 0).then(|| {
        let file = path.display();
        Problem::warning(format!("`{file}` is open to {who} (mode {mode:o})"), span).help(format!("{command} {file}"))
    })
}

fn program(path: &Path, span: Option<Range<usize>>) -> Option<Problem> {
    let file = path.display();
    let runs = |path: &Path| {
        std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    if path.components().count() == 1 && !path.is_absolute() {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&folders).any(|folder| runs(&folder.join(path)));
        return (!found).then(|| {
            Problem::new(format!("there is no program `{file}` in the folders of PATH"), span)
                .help("install it, or write its whole path")
        });
    }
    match std::fs::metadata(path) {
        Err(error) => Some(unreadable(path, span, &error)),
        Ok(_) if runs(path) => None,
        Ok(metadata) if metadata.is_dir() => Some(
            Problem::new(format!("`{file}` is a directory, and a program is needed"), span).help("name a file in it"),
        ),
        Ok(_) => Some(Problem::new(format!("`{file}` may not be run"), span).help(format!("chmod +x {file}"))),
    }
}

fn unreadable(path: &Path, span: Option<Range<usize>>, error: &std::io::Error) -> Problem {
    let (file, from_file) = (path.display(), span.is_some());
    match error.kind() {
        std::io::ErrorKind::NotFound => Problem::new(format!("the file `{file}` does not exist"), span)
            .help(missing(path, from_file, "check the path")),
        std::io::ErrorKind::PermissionDenied => Problem::new(format!("the file `{file}` may not be read"), span).help(
            format!(
                "let user {0} read it, and for a key or a secret no other: `chown {0} {file}` as root; `namei -l {file}` shows \
                 folders that are closed",
                rustix::process::getuid().as_raw()
            )
        ),
        std::io::ErrorKind::IsADirectory => {
            Problem::new(format!("`{file}` is a directory, and a file is needed"), span).help("name a file in it")
        }
        _ => Problem::new(format!("the file `{file}` cannot be read: {error}"), span),
    }
}

/// The help for a path that leads nowhere.
fn missing(path: &Path, from_file: bool, help: &str) -> String {
    let mut parts = path.components().map(|part| part.as_os_str().as_encoded_bytes());
    match from_file {
        true if parts.any(|part| part.starts_with(b"~") || part.starts_with(b"$")) => {
            "write the whole path: `~` and `$NAME` stand for themselves".to_owned()
        }
        true => format!("{help}; a relative path in the file starts at the file's folder"),
        false => help.to_owned(),
    }
}

fn directory(path: &Path, span: Option<Range<usize>>) -> Option<Problem> {
    if span.is_none() && path.extension().is_some_and(|extension| extension == "toml") && !path.is_dir() {
        let message = format!("`{}` is given as a directory to serve, and looks like a configuration", path.display());
        return Some(Problem::new(message, None).help(format!("give it by a flag: `--config {}`", path.display())));
    }
    let error = match std::fs::read_dir(path) {
        Ok(_) => return None,
        Err(error) => error,
    };
    let root = path.display();
    Some(match error.kind() {
        std::io::ErrorKind::NotFound => {
            let help = match root.to_string().is_empty() {
                true => "write `.` for the folder that this is in".to_owned(),
                false => missing(path, span.is_some(), "make it, or name another"),
            };
            Problem::new(format!("the directory `{root}` does not exist"), span).help(help)
        }
        std::io::ErrorKind::NotADirectory => {
            Problem::new(format!("`{root}` is not a directory"), span).help("name the directory that the file lies in")
        }
        std::io::ErrorKind::PermissionDenied => Problem::new(format!("the directory `{root}` may not be read"), span)
            .help(format!(
                "let user {} read and enter it (chmod, chown); `namei -l {root}` shows folders that are closed",
                rustix::process::getuid().as_raw()
            )),
        _ => Problem::new(format!("the directory `{root}` cannot be read: {error}"), span),
    })
}

/// Checks that chain and key can be read and belong together.
fn certificate(files: &CertificateFiles, spans: &SiteSpans) -> Vec<Problem> {
    let chain = pem(&files.chain, spans.chain.clone(), "certificate", |bytes| {
        CertificateDer::pem_slice_iter(bytes)
            .collect::<Result<Vec<_>, _>>()
            .map(|chain| Some(chain).filter(|c| !c.is_empty()))
    });
    let key = pem(&files.key, spans.key.clone(), "private key", |bytes| match PrivateKeyDer::from_pem_slice(bytes) {
        Err(pem::Error::NoItemsFound) => Ok(None),
        key => key.map(Some),
    });
    let (chain, key) = match (chain, key) {
        (Ok(chain), Ok(key)) => (chain, key),
        (chain, key) => return chain.err().into_iter().chain(key.err()).collect(),
    };
    let (chain_file, key_file) = (files.chain.display(), files.key.display());
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let key = match provider.key_provider.load_private_key(key) {
        Ok(key) => key,
        Err(error) => {
            let message = format!("the private key in `{key_file}` cannot be used: {error}");
            return vec![Problem::new(message, spans.key.clone()).help("give an RSA, ECDSA or Ed25519 key")];
        }
    };
    let warnings = validity::warnings(&chain[0], files, spans.chain.clone(), SystemTime::now());
    match CertifiedKey::new(chain, key).keys_match() {
        // Some keys do not reveal their public half. The handshake will show a mismatch.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => warnings,
        Err(rustls::Error::InconsistentKeys(_)) => vec![
            Problem::new(
                format!("the certificate in `{chain_file}` and the key in `{key_file}` do not belong together"),
                spans.key.clone(),
            )
            .also(spans.chain.clone(), "the certificate")
            .help("give the key that the certificate was made for"),
        ],
        Err(error) => vec![Problem::new(
            format!("the certificate in `{chain_file}` cannot be used: {error}"),
            spans.chain.clone(),
        )],
    }
}

/// Reads a PEM file. `read` gets its bytes, and returns `None` if the wanted part is missing.
fn pem<T>(
    path: &Path,
    span: Option<Range<usize>>,
    what: &str,
    read: impl Fn(&[u8]) -> Result<Option<T>, pem::Error>,
) -> Result<T, Problem> {
    let file = path.display();
    let bytes = std::fs::read(path).map_err(|error| unreadable(path, span.clone(), &error))?;
    match read(&bytes) {
        Ok(Some(found)) => Ok(found),
        Ok(None) => {
            let (found, help) = instead(&bytes, what);
            Err(Problem::new(format!("there is no {what} in `{file}`{found}"), span).help(help))
        }
        Err(error) => Err(Problem::new(format!("the {what} in `{file}` cannot be read: {error}"), span)),
    }
}

/// Names the parts of a PEM file that lacks the wanted one, and says what to do.
fn instead(bytes: &[u8], wanted: &str) -> (&'static str, &'static str) {
    let text = String::from_utf8_lossy(bytes);
    let has = |label: &str| text.lines().any(|line| line.starts_with("-----BEGIN ") && line.contains(label));
    if has("ENCRYPTED PRIVATE KEY") {
        (
            ": its key is under a password",
            "take it off: `openssl pkey -in FILE -out NEW`, and let nobody else read the new file",
        )
    } else if has("CERTIFICATE REQUEST") {
        (": it has a request for one", "give the certificate that the authority made from the request")
    } else if has("CERTIFICATE") && wanted != "certificate" {
        (
            ": it has a certificate",
            "`tls-cert` is for the certificate; give `tls-key` the key that the certificate was made for",
        )
    } else if has("PRIVATE KEY") {
        (": it has a private key", "give the file with the certificate; a private key belongs in `tls-key`")
    } else if wanted == "certificate" {
        (
            "",
            "give a PEM file: text with lines such as `-----BEGIN CERTIFICATE-----`; \
             `openssl x509 -inform der -in FILE -out NEW` makes it of a binary one",
        )
    } else {
        ("", "give a PEM file: text with lines such as `-----BEGIN PRIVATE KEY-----`")
    }
}

fn log_file(path: &Path, what: &str, span: Option<Range<usize>>) -> Option<Problem> {
    if path.is_dir() {
        return Some(
            Problem::new(format!("the {what} `{}` is a directory", path.display()), span).help("name a file in it"),
        );
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    (!folder.is_dir()).then(|| {
        Problem::new(format!("the folder `{}` of the {what} does not exist", folder.display()), span)
            .help("make it, or name another file")
    })
}

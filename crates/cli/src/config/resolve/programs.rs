//! Programs that the server starts: CGI programs of routes, and the workers of an upstream.

use std::{num::NonZeroU32, ops::Range, path::PathBuf, time::Duration};

use server::config::{CgiConfig, FastCgiConfig, UwsgiConfig, WorkersConfig};
use toml::Spanned;

use super::{
    named_files::{FileKind, NamedFile, path_in},
    resolver::Resolver,
};
use crate::{
    config::{
        problems::Problem,
        raw::{RawCgi, RawFastCgi, RawUwsgi, RawWorkers},
        written::Pairs,
        written::TextOr,
    },
    spelling, values,
};

impl Resolver<'_> {
    pub(super) fn worker_processes(&mut self, upstream: &str, written: &Spanned<RawWorkers>) -> WorkersConfig {
        let raw = written.get_ref();
        let default = WorkersConfig {
            upstream: upstream.to_owned(),
            command: Vec::new(),
            directory: None,
            environment: Vec::new(),
            processes: NonZeroU32::MIN.saturating_add(1),
            start_timeout: Duration::from_secs(10),
            stop_timeout: Duration::from_secs(10),
        };
        WorkersConfig {
            command: self.command(raw, written.span()),
            directory: self.file(&raw.directory, FileKind::Directory),
            environment: self.environment(raw.environment.as_ref()),
            processes: self.setting(
                None,
                &raw.processes,
                |text| values::count(text, 1000).map(|count| NonZeroU32::new(count as u32).unwrap_or(NonZeroU32::MIN)),
                default.processes,
            ),
            start_timeout: self.setting(None, &raw.start_timeout, values::duration, default.start_timeout),
            stop_timeout: self.setting(None, &raw.stop_timeout, values::duration, default.stop_timeout),
            upstream: default.upstream,
        }
    }

    fn command(&mut self, raw: &RawWorkers, owner: Range<usize>) -> Vec<String> {
        let help = "add `command = [\"/usr/bin/app\", \"--listen\", \"unix:{socket}\"]`";
        let Some(list) = &raw.command else {
            if self.shape_is_sound {
                self.problems.push(Problem::new("these workers have no `command`", Some(owner)).help(help));
            }
            return Vec::new();
        };
        let (place, list) = (list.span(), list.get_ref());
        let mut words: Vec<String> = list.iter().map(|word| word.get_ref().0.clone()).collect();
        let Some(program) = words.first_mut() else {
            self.problems.push(Problem::new("the command is empty", Some(place)).help(help));
            return words;
        };
        if program.contains('/') {
            *program = self.absolute(program).to_string_lossy().into_owned();
        }
        let path = PathBuf::from(&*program);
        self.named_files.push(NamedFile { path, span: Some(list[0].span()), kind: FileKind::Program });
        let known = ["socket", "port", "class"];
        let mut reached = false;
        for (word, written) in words.iter().zip(list) {
            for name in placeholders(word) {
                reached |= matches!(name, "socket" | "port");
                // Commands use braces for other things, too.
                if let Some(meant) = spelling::like(name, known).filter(|meant| *meant != name) {
                    self.problems.push(
                        Problem::new(format!("there is no `{{{name}}}` to put in"), Some(written.span()))
                            .help(format!("did you mean `{{{meant}}}`?")),
                    );
                    reached = true;
                }
            }
        }
        if !reached {
            self.problems.push(
                Problem::new("nothing in the command tells the worker where to listen", Some(place)).help(
                    "write `{socket}` where it takes the path of a Unix socket, or `{port}` where it takes a port",
                ),
            );
        }
        words
    }

    pub(super) fn cgi(&mut self, written: &Spanned<TextOr<RawCgi>>) -> Option<CgiConfig> {
        let table = &*written.get_ref().table(written.span());
        let missing =
            ("this table has no `program`", "add `program = \"/usr/lib/cgi-bin\"`: a directory, or one program");
        let program = self.required(&table.program, written.span(), missing, |text| Ok(text.to_owned()))?;
        let program = self.absolute(&program);
        let kind = if table.interpreter.is_some() { FileKind::Scripts } else { FileKind::Programs };
        let place = table.program.as_ref().map(Spanned::span);
        self.named_files.push(NamedFile { path: program.clone(), span: place, kind });
        let interpreter = table.interpreter.as_ref().map(|interpreter| {
            let path = self.absolute(&interpreter.get_ref().0);
            let span = Some(interpreter.span());
            self.named_files.push(NamedFile { path: path.clone(), span, kind: FileKind::Program });
            path
        });
        Some(CgiConfig {
            program,
            interpreter,
            environment: self.environment(table.environment.as_ref()),
            pass_environment: self.read_each(table.pass_environment.as_deref().unwrap_or_default(), variable),
            timeout: self.setting(None, &table.timeout, values::duration, Duration::from_secs(60)),
            head_bytes: self.setting(None, &table.response_head, values::response_head, 64 * 1024),
            most_running: self.setting(None, &table.max_running, most_running, const { NonZeroU32::new(64).unwrap() }),
        })
    }

    /// `has_files`: the site has a root, which is that of the scripts where the table names none.
    pub(super) fn fastcgi(&mut self, written: &Spanned<TextOr<RawFastCgi>>, has_files: bool) -> Option<FastCgiConfig> {
        let table = &*written.get_ref().table(written.span());
        let missing = ("this table has no `address`", "add `address = \"unix:/run/php/php-fpm.sock\"`");
        let address = self.required(&table.address, written.span(), missing, values::fastcgi_address);
        let root = self.file(&table.root, FileKind::Directory);
        let remote_root = self.optional(&table.remote_root, |text| match text.starts_with('/') {
            true => Ok(PathBuf::from(text)),
            false => Err(format!("`{text}` is no path that another machine understands: begin with `/`")),
        });
        if root.is_none() && remote_root.is_none() && !has_files && self.is_as_written() {
            self.problems.push(
                Problem::new("nothing says where the scripts are: this site has no `root`", Some(written.span())).help(
                    "give the site or this table a `root`; `remote-root` if only the application sees the scripts",
                ),
            );
        }
        let extensions = match &table.extensions {
            None => vec!["php".to_owned()],
            Some(list) => self.read_each(list, values::script_extension),
        };
        if table.extensions.as_ref().is_some_and(Vec::is_empty) {
            self.problems.push(
                Problem::new("no file is a script without an extension", Some(written.span()))
                    .help("write it as in `extensions = [\"php\"]`"),
            );
        }
        let index = match &table.index {
            None => Some("index.php".to_owned()).filter(|_| extensions.iter().any(|extension| extension == "php")),
            Some(written) if written.get_ref().0 == "off" => None,
            Some(_) => self.optional(&table.index, |text| {
                let extension = text.rsplit_once('.').map(|(_, extension)| extension);
                let is_script = extension.is_some_and(|found| extensions.iter().any(|extension| extension == found));
                match is_script && !text.contains('/') {
                    true => Ok(text.to_owned()),
                    false => Err(format!("`{text}` is not the name of a script: it has one of `extensions`")),
                }
            }),
        };
        let config = FastCgiConfig {
            address: address?,
            resolvers: self.resolvers.clone(),
            root,
            remote_root,
            extensions,
            index,
            environment: self.environment(table.environment.as_ref()),
            connect_timeout: self.setting(None, &table.connect_timeout, values::duration, Duration::from_secs(5)),
            idle_timeout: self.setting(None, &table.timeout, values::duration, Duration::from_secs(60)),
            head_bytes: self.setting(None, &table.response_head, values::response_head, 64 * 1024),
            most_running: self.setting(None, &table.max_running, most_running, const { NonZeroU32::new(256).unwrap() }),
            keep_connections: self.setting(
                None,
                &table.keep_connections,
                |text| values::count_or_off(text, 65_536).map(|count| count.unwrap_or(0) as usize),
                0,
            ),
            keep_for: self.setting(None, &table.keep_for, values::duration, Duration::from_secs(2)),
        };
        Some(config)
    }

    pub(super) fn uwsgi(&mut self, written: &Spanned<TextOr<RawUwsgi>>) -> Option<UwsgiConfig> {
        let table = &*written.get_ref().table(written.span());
        let missing = ("this table has no `address`", "add `address = \"unix:/run/uwsgi/app.sock\"`");
        let modifier = |text: &str| {
            text.parse().map_err(|_| format!("`{text}` is not a number from 0 to 255: most applications have 0"))
        };
        Some(UwsgiConfig {
            address: self.required(&table.address, written.span(), missing, values::uwsgi_address)?,
            resolvers: self.resolvers.clone(),
            modifier: self.setting(None, &table.modifier, modifier, 0),
            environment: self.environment(table.environment.as_ref()),
            connect_timeout: self.setting(None, &table.connect_timeout, values::duration, Duration::from_secs(5)),
            idle_timeout: self.setting(None, &table.timeout, values::duration, Duration::from_secs(60)),
            head_bytes: self.setting(None, &table.response_head, values::response_head, 64 * 1024),
            most_running: self.setting(None, &table.max_running, most_running, const { NonZeroU32::new(256).unwrap() }),
        })
    }

    fn environment(&mut self, written: Option<&Pairs>) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        for (name, value) in written.into_iter().flatten() {
            if variable(name.get_ref()).is_err() || value.get_ref().0.contains('\0') {
                let message = format!("`{}` cannot be a variable of this value", name.get_ref());
                self.problems
                    .push(Problem::new(message, Some(name.span())).help("write it as in `LANG = \"C.UTF-8\"`"));
                continue;
            }
            variables.push((name.get_ref().clone(), value.get_ref().0.clone()));
        }
        variables
    }

    /// The absolute path of a program. Programs start in another folder, where a relative path would mean another file.
    fn absolute(&self, path: &str) -> PathBuf {
        let path = path_in(self.folder, path);
        std::path::absolute(&path).unwrap_or(path)
    }
}

fn most_running(text: &str) -> Result<NonZeroU32, String> {
    values::count(text, 100_000).map(|n| NonZeroU32::new(n as u32).unwrap_or(NonZeroU32::MIN))
}

fn variable(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(['=', '\0']) {
        return Err(format!("`{text}` is not the name of a variable"));
    }
    Ok(text.to_owned())
}

/// The names in braces of a word, such as `socket` of `{socket}`.
fn placeholders(word: &str) -> impl Iterator<Item = &str> {
    word.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name))
}

//! Tests of the commands and configuration files in the documents. Each command is parsed, each configuration is read,
//! and commands that need only files are run.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use clap::Parser as _;

use self::reader::{Block, Documented, blocks, documented, repository};
use crate::{
    args::{Cli, Command},
    check::{self, CheckArgs},
    config,
    explain::{self, ExplainArgs},
    probe,
};

mod reader;

fn command(documented: &Documented) -> Option<Command> {
    let ("serpent", line) = documented.program()? else { return None };
    match Cli::try_parse_from(&line) {
        Ok(cli) => Some(cli.command),
        Err(error) => panic!("{}: {}\n{error}", documented.place, line.join(" ")),
    }
}

#[test]
fn every_command_of_the_documents_is_one() {
    let mut serpent = BTreeSet::new();
    let mut others = 0;
    for documented in documented() {
        if documented.program().is_some_and(|(program, _)| program == "serpent-lab") {
            // The tests of that program read it.
            continue;
        }
        if command(&documented).is_some() {
            serpent.insert(documented.place);
            continue;
        }
        let words: Vec<&str> = documented.words.iter().map(String::as_str).collect();
        let after = |option: &str| words.iter().position(|word| *word == option).map(|at| words[at + 1]);
        let exists = |path: &str| assert!(repository().join(path).exists(), "{}: there is no {path}", documented.place);
        match words.as_slice() {
            ["cargo", ..] => {
                others += 1;
                let package = match after("-p").unwrap_or("serpent") {
                    "serpent" => "crates/cli".to_owned(),
                    "serpent-lab" => "lab/cli".to_owned(),
                    name => {
                        let name = name.trim_start_matches("serpent-");
                        let folder =
                            ["crates", "lab"].into_iter().find(|folder| repository().join(folder).join(name).exists());
                        format!("{}/{name}", folder.unwrap_or("crates"))
                    }
                };
                exists(&package);
                after("--path").iter().for_each(|path| exists(path));
                after("--example").iter().for_each(|name| exists(&format!("{package}/examples/{name}.rs")));
                after("--test").iter().for_each(|name| {
                    let file = format!("{package}/tests/{name}");
                    exists(&if repository().join(&file).is_dir() {
                        format!("{file}/main.rs")
                    } else {
                        format!("{file}.rs")
                    });
                });
            }
            [script, ..] if script.contains('/') && repository().join(script).is_file() => {
                others += 1;
                let mode = fs::metadata(repository().join(script)).unwrap().permissions().mode();
                assert!(mode & 0o111 != 0, "{}: {script} cannot be run", documented.place);
            }
            [script, ..] => {
                let ours = ["fuzz/", "benches/", "profile/", "examples/", "packaging/", "./release", "./test", ".ci/"];
                assert!(
                    !ours.iter().any(|folder| script.starts_with(folder)),
                    "{}: there is no {script}",
                    documented.place
                );
            }
            [] => {}
        }
    }
    println!("{} of serpent, {others} others", serpent.len());
    assert!(serpent.len() >= 25 && others >= 10, "{} and {others}: are the documents read?", serpent.len());
}

/// Whether a block is a configuration file, or a part of one; other programs have files of their own.
fn is_configuration(block: &Block) -> bool {
    let is_key = |line: &str| {
        let Some((key, value)) = line.split_once(" = ") else { return false };
        key.chars().all(|c| c == '-' || c.is_ascii_lowercase()) && value.starts_with(['"', '[', '{', 't', 'f'])
    };
    let is_header =
        |line: &str| line.starts_with('[') && line.trim_end().ends_with(']') && !matches!(line, "[Unit]" | "[Socket]");
    let first = block.text.lines().find(|line| !line.is_empty() && !line.starts_with('#'));
    block.file != "docs/guide/lab.md" && first.is_some_and(|line| is_key(line) || is_header(line))
}

/// A part of a file, with what it takes for granted: a site, the classes and upstreams that it names, slots, and keys.
fn completed(text: &str) -> String {
    let part: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    let list = |key: &str| part.get(key).and_then(toml::Value::as_array).cloned().unwrap_or_default();
    let names = |tables: &[toml::Value], key: &str| -> BTreeSet<String> {
        tables.iter().filter_map(|table| Some(table.get(key)?.as_str()?.to_owned())).collect()
    };
    let routes: Vec<toml::Value> =
        list("site").iter().filter_map(|site| site.get("route")?.as_array().cloned()).flatten().collect();
    let mut whole = text.to_owned();
    for class in names(&list("rule"), "class").difference(&names(&list("class"), "name")) {
        whole += &format!("\n[[class]]\nname = \"{class}\"\n");
    }
    for upstream in names(&routes, "upstream").difference(&names(&list("upstream"), "name")) {
        whole += &format!("\n[[upstream]]\nname = \"{upstream}\"\nservers = [\"http://127.0.0.1:3000\"]\n");
    }
    let resources = part.get("admission").and_then(|admission| admission.get("resources")?.as_table().cloned());
    if !part.contains_key("site") {
        whole += "\n[[site]]\n";
        for upstream in names(&list("upstream"), "name") {
            whole += &format!("[[site.route]]\npath = \"/{upstream}/\"\nupstream = \"{upstream}\"\n");
        }
        // A resource that no route needs is a mistake, and one with a page may name its upstream.
        let mut upstreams = BTreeSet::new();
        for (name, resource) in resources.into_iter().flatten() {
            let upstream = resource.get("upstream").and_then(toml::Value::as_str).unwrap_or("app").to_owned();
            whole +=
                &format!("[[site.route]]\npath = \"/{name}/\"\nupstream = \"{upstream}\"\nresource = \"{name}\"\n");
            upstreams.insert(upstream);
        }
        whole += "[[site.route]]\npath = \"/\"\nfiles = true\n";
        for upstream in upstreams {
            whole += &format!("[[upstream]]\nname = \"{upstream}\"\nservers = [\"http://127.0.0.1:3000\"]\n");
        }
        whole = whole.replace("\n[[site]]\n", "\n[[site]]\nroot = \"/srv/www\"\n");
    }
    if !part.contains_key("admission") {
        whole += "\n[admission]\nslots = 20\n";
    }
    if !part.contains_key("keys") && list("rule").iter().any(|rule| rule.get("key").is_some()) {
        whole += "\n[keys]\nfile = \"keys\"\n";
    }
    whole
}

/// A folder with the files that documents name, and a text in which they are those.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for directory in ["www", "log", "cgi"] {
            fs::create_dir(at(directory)).unwrap();
        }
        let certified = rcgen::generate_simple_self_signed(vec!["example.org".to_owned()]).unwrap();
        let (cert, key) = (certified.cert.pem(), certified.signing_key.serialize_pem());
        for (name, text, mode) in [
            ("fullchain.pem", cert.as_str(), 0o644),
            ("privkey.pem", &key, 0o600),
            ("session.secret", &"s".repeat(64), 0o600),
            ("admin.token", &"t".repeat(64), 0o600),
            ("app", "#!/bin/sh\n", 0o755),
            ("keys", "", 0o600),
            ("htpasswd", "", 0o600),
            ("www/404.html", "", 0o644),
            ("www/sorry.html", "", 0o644),
            ("www/503.json", "", 0o644),
        ] {
            fs::write(at(name), text).unwrap();
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        Self(folder)
    }

    fn here(&self, text: &str) -> String {
        let folder = self.0.path().display();
        let mut text = text.to_owned();
        for (documented, name) in [
            ("/etc/serpent/", ""),
            ("/srv/www", "www"),
            ("/var/log/serpent/", "log/"),
            ("/usr/bin/app", "app"),
            ("/usr/lib/cgi-bin", "cgi"),
        ] {
            text = text.replace(documented, &format!("{folder}/{name}"));
        }
        text
    }
}

#[test]
fn every_configuration_of_the_documents_is_understood() {
    let files = Files::new();
    let mut wrong = Vec::new();
    let mut understood = 0;
    for block in blocks().iter().filter(|block| is_configuration(block)) {
        let text = files.here(&completed(&block.text));
        match config::load_text(&files.0.path().join("serpent.toml"), text) {
            Ok(_) => understood += 1,
            Err(problems) => wrong.push(format!("{}, line {}:\n{problems}", block.file, block.line)),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(understood >= 12, "{understood}: are the documents read?");
}

/// A site that answers every request with a page, and says where it is.
fn site() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = |stream: TcpStream| -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        loop {
            let mut line = String::new();
            while line != "\r\n" {
                line.clear();
                if reader.read_line(&mut line)? == 0 {
                    return Ok(());
                }
            }
            (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npage")?;
        }
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || answer(stream));
        }
    });
    address
}

/// The first file of a document.
fn file_of(document: &str) -> String {
    let all = blocks();
    all.iter().find(|block| block.file == document && is_configuration(block)).unwrap().text.clone()
}

/// A log of some requests.
fn log() -> String {
    let line = |second: usize| {
        let (minute, second, size) =
            (second / 60, second % 60, if second.is_multiple_of(10) { 200_000 } else { 2_000 });
        format!("192.0.2.1 - - [01/May/2024:10:{minute:02}:{second:02} +0000] \"GET /{second} HTTP/1.1\" 200 {size}\n")
    };
    (0..600).map(line).collect()
}

/// Commands that need a network, root, a site, or hours are parsed only.
#[test]
fn commands_of_the_documents_that_need_only_files_do_what_they_are_for() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let sites = [("README.md", "readme.toml"), ("docs/guide/gateway.md", "gateway.toml")];
    for (document, name) in sites {
        let text = ["10.0.0.1:3000", "10.0.0.2:3000", "127.0.0.1:3000"]
            .into_iter()
            .fold(file_of(document), |text, server| text.replace(server, &site().to_string()));
        fs::write(at(name), text).unwrap();
    }
    fs::write(at("access.log"), log()).unwrap();
    let mut ran = BTreeSet::new();
    for documented in documented() {
        let file = |documented: &Documented| {
            at(if documented.place.starts_with("README.md") { "readme.toml" } else { "gateway.toml" })
        };
        let whole_site = |name: &Path| matches!(name.to_str(), Some("shop.toml" | "/etc/serpent.toml"));
        match command(&documented) {
            Some(Command::Check(args)) if whole_site(&args.file) => {
                let checked = check::check(&CheckArgs { file: file(&documented), ..args });
                let checked = checked.unwrap_or_else(|problems| panic!("{}: {problems}", documented.place));
                assert!(checked.warnings.is_none(), "{}: {}", documented.place, checked.warnings.unwrap());
                ran.insert("check");
            }
            Some(Command::Explain(args)) if whole_site(&args.config) => {
                let said = explain::explain(&ExplainArgs { config: file(&documented), ..*args });
                assert!(said.is_ok(), "{}: {:?}", documented.place, said.unwrap_err());
                ran.insert("explain");
            }
            Some(Command::Probe(args)) if documented.place.starts_with("README.md") => {
                let short = ["serpent", "probe", "x", "--yes", "--dry-run", "--ceiling", "1", "--least-requests", "1"];
                let mut line: Vec<&str> = short.to_vec();
                line.extend(["--seconds-per-rate", "0.1"]);
                let Ok(Cli { command: Command::Probe(short), .. }) = Cli::try_parse_from(line) else {
                    panic!("no flags")
                };
                assert_eq!(args.config, Path::new("shop.toml"));
                let probed = probe::probe(&probe::ProbeArgs { config: file(&documented), ..*short });
                assert!(probed.is_ok(), "{}: {:?}", documented.place, probed.unwrap_err());
                ran.insert("probe");
            }
            Some(Command::Advise(mut args)) => {
                // Parts of a log that are named together have times of their own, which these files have not.
                args.logs = vec![at("access.log")];
                // This machine need not have that server.
                (args.nginx, args.apache, args.caddy) = (false, false, false);
                args.html = args.html.map(|_| at("advice.html"));
                args.json = args.json.map(|_| at("advice.json"));
                let said = crate::advise::advise(&args);
                assert!(said.is_ok(), "{}: {:?}", documented.place, said.unwrap_err());
                ran.insert("advise");
            }
            _ => {}
        }
    }
    let expected = ["advise", "check", "explain", "probe"];
    assert_eq!(ran.into_iter().collect::<Vec<_>>(), expected);
}

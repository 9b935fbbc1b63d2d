//! Mistakes that a person makes who tries the program: each message names the place, and what to write or to run
//! instead. Nothing is started, and the exit code says so.

use std::{
    fs,
    io::Read as _,
    net::{TcpListener, TcpStream},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use rustix::process::Signal;

use crate::support::{PATIENCE, Serpent, certificate, site, tool};

/// Arguments, the place in the message, and the mend.
const COMMANDS: &[(&[&str], &str, &str)] = &[
    (&["www"], "'www'", "tip: 'serpent serve www' serves this directory"),
    (&["ok.toml"], "'ok.toml'", "tip: 'serpent serve --config ok.toml'"),
    (&["server"], "'server'", "'serve'"),
    (&["start"], "'start'", "tip: 'serpent serve DIR --listen :80'"),
    (&["reverse-proxy"], "'reverse-proxy'", "tip: 'serpent serve --upstream http://127.0.0.1:3000'"),
    (&["reload"], "'reload'", "tip: 'kill -HUP PID'"),
    (&["-c", "ok.toml"], "'-c'", "tip: 'serpent serve --config FILE'"),
    (&["-t"], "'-t'", "tip: 'serpent check FILE'"),
    (&["-v"], "'-v'", "tip: 'serpent --version'"),
    (&["serve", "--port", "80"], "'--port'", "tip: '--listen :80' listens on port 80"),
    (&["serve", "--lisen", ":80"], "'--lisen'", "'--listen'"),
    (&["serve", "--root", "www"], "'--root'", "as in 'serpent serve ./public'"),
    (&["serve", "--https"], "'--https'", "tip: '--listen https://:443 --tls-cert FILE --tls-key FILE'"),
    (&["serve", "--domain", "a.example"], "'--domain'", "'names' of '[[site]]'"),
    (&["serve", "-t"], "'-t'", "tip: 'serpent check FILE'"),
    (&["serve", "nowhere"], "`nowhere` does not exist", "make it, or name another"),
    (&["serve", "www/hello.txt"], "`www/hello.txt` is not a directory", "name the directory that the file lies in"),
    (&["serve", "ok.toml"], "`ok.toml` is given as a directory", "`--config ok.toml`"),
    (&["serve", "www", "www"], "'www'", "tip: one directory is served"),
    (&["serve", "www", "--upstream", "http://a"], "'[DIR]'", "tip: leave one of them out"),
    (&["serve", "--listen", "8081"], "'--listen <ADDR:PORT>'", "`127.0.0.1:8081` or `[::1]:8081`, or `:8081`"),
    (&["serve", "--listen", "a.example:80"], "'--listen <ADDR:PORT>'", "`127.0.0.1:80` or `[::1]:80`, or `:80`"),
    (&["serve", "--listen", "192.0.2.1:0"], "192.0.2.1:0", "`ip -br address` lists all"),
    (&["serve", "--listen", "https://:0"], "https://[::]:0", "`openssl req -x509"),
    (&["serve", "--tls-cert", "c.crt"], "--tls-key <FILE>", "--tls-key <FILE>"),
    (&["serve", "--uplink", "10"], "'--uplink <auto|RATE|off>'", "use bit, kbit, mbit or gbit"),
    (&["serve", "--order", "strpt"], "'--order <NAME>'", "'srpt'"),
    (&["serve", "--cache", "10mbit"], "'--cache <SIZE>'", "as in `4096`, `32KiB`"),
    (&["serve", "--cache", "10"], "'--cache <SIZE>'", "as in `10MiB`"),
    (&["serve", "--shutdown-timeout", "30"], "'--shutdown-timeout <TIME>'", "as in `500ms`, `30s`"),
    (&["serve", "--log", "loud"], "--log", "write `error`, `warn`, `info`"),
    (&["serve", "--access-log", "no/log"], "`no` of the access log", "make it, or name another file"),
    (&["serve", "--upstream", "localhost:3000"], "'--upstream <URL>'", "write `http://localhost:3000`"),
    (&["serve", "--upstream", "3000"], "'--upstream <URL>'", "write `http://127.0.0.1:3000`"),
    (&["serve", "--upstream", "http://a/b"], "'--upstream <URL>'", "a route's `path` and `replace-prefix`"),
    (&["serve", "--config", "none.toml"], "--> none.toml", "check the path"),
    (&["serve", "--config", "www"], "--> www", "name the file in it"),
    (&["serve", "--config", "Caddyfile"], "--> Caddyfile:1:1", "`serpent import --from caddy FILE"),
    (&["serve", "--config", "nginx.conf"], "--> nginx.conf:2:3", "`serpent import FILE > serpent.toml`"),
    (&["serve", "--config", "site.yaml"], "--> site.yaml:1:1", "begin with `[[site]]`"),
    (&["serve", "--config", "c.crt"], "--> c.crt:1:1", "`tls-cert` and `tls-key` of a `[[site]]`"),
    (&["serve", "--config", "utf-16.toml"], "--> utf-16.toml", "`iconv -f UTF-16 -t UTF-8 utf-16.toml"),
    (&["serve", "--config", "latin-1.toml"], "--> latin-1.toml:2:3", "`iconv -f LATIN1 -t UTF-8 latin-1.toml"),
    (&["advise", "--nginx", "--uplink", "1mbit", "ok.toml"], "'--nginx'", "serpent advise"),
    (&["advise", "nowhere.log", "--uplink", "1mbit"], "`nowhere.log`", "there is no log"),
    (&["advise", "--admin", "http://127.0.0.1:1"], "127.0.0.1:1", "is the server running there"),
    (&["import", "ok.toml"], "ok.toml:1", "`serpent check` reads it"),
    (&["explain", "-c", "ok.toml", "basket"], "`basket`", "`http://shop.example/basket` or `/basket`"),
    (&["probe", "ok.toml"], "no resource has a page", "`site = { window = 20, probe = \"/basket\" }`"),
    (&["serve", "--config", "bom.toml"], "--> bom.toml:2:8", "a relative path in the file"),
    (&["serve", "--listen", ":80,:443"], "'--listen <ADDR:PORT>'", r#"`[":80", ":443"]`"#),
    (&["serve", "--upstream", "http://a,http://b"], "'--upstream <URL>'", r#"`["http://a", "http://b"]`"#),
    (&["serve", "--access-log", "stdout"], "`stdout` would be a file", "write `-` for standard output"),
    (&["advise"], "<ACCESS_LOG>...", "tip: 'serpent advise --nginx --uplink 100mbit'"),
    (&["advise", "ok.toml", "--uplink", "1mbit"], "`ok.toml`: it looks like a configuration", "name the access log"),
    (&["import", "none.conf"], "none.conf cannot be read", "check the path"),
    (&["import", "www"], "www cannot be read", "name the file in it"),
];

/// A file, the place in the message, and the mend. `SITE` stands for a sound site.
const FILES: &[(&str, &str, &str)] = &[
    ("", "--> x.toml", "add `[[site]]` with `root = \"DIRECTORY\"`"),
    ("[site]\nroot = \"www\"\n", ":1:1", "write `[[site]]`"),
    ("site = \"www\"\n", ":1:8", "write `[[site]]`, and its settings below it"),
    ("[[sites]]\nroot = \"www\"\n", ":1:3", "did you mean `[[site]]`?"),
    ("[[server]]\nlisten = 80\n", ":1:3", "here that is a `[[site]]`"),
    ("root = \"www\"\n", ":1:1", "`root` belongs in `[[site]]`"),
    ("[listen]\nport = 80\nSITE", ":1:1", "`listen = [\"https://:443\", \"http://:80\"]` at the top of the file"),
    ("[uplink]\nlisten = \":80\"\nSITE", ":2:1", "`listen` belongs at the top of the file, before the first table"),
    ("SITEupstream = \"http://a\"\n", ":3:1", "`upstream` belongs in `[[site.route]]`"),
    ("[[route]]\npath = \"/\"\nSITE", ":1:3", "`route` is a table: write `[[site.route]]`"),
    ("SITE[site.route]\npath = \"/\"\n", ":3:1", "write `[[site.route]]`"),
    ("SITE[[site.files]]\nlisting = true\n", ":3:8", "write `[site.files]`"),
    ("[[uplink]]\nrate = \"1mbit\"\nSITE", ":1:3", "write `[uplink]`"),
    ("uplink = \"1mbit\"\nSITE", ":1:10", "write `[uplink]`, and its settings below it"),
    ("lisen = \":80\"\nSITE", ":1:1", "did you mean `listen`?"),
    ("[limits]\nidle_timeout = \"1s\"\nSITE", ":2:1", "did you mean `idle-timeout`?"),
    ("SITEfrobnicate = 1\n", ":3:1", "there are `names`, `root`"),
    ("SITEhost = \"a\"\n", ":3:1", "here that is `names`"),
    ("SITEproxy_pass = \"http://a\"\n", ":3:1", "here that is `upstream` of a `[[site.route]]`"),
    ("[access-log]\nfile = \"a\"\nSITE", ":2:1", "here that is `target`"),
    ("admin = true\nSITE", ":1:9", "write it as in `admin = \"127.0.0.1:9090\"`"),
    ("[files]\nlisting = \"on\"\nSITE", ":2:11", "write it as in `listing = false`"),
    ("[files]\nlisting = yes\nSITE", ":2:11", "write `true`, without quotes"),
    ("SITErequire = true\n", ":3:11", "write it as in `require = { user ="),
    ("SITElimit = 5\n", ":3:9", "write it as in `limit = { rate = \"20/s\" }`"),
    ("[[site]]\nroot = www\n", ":2:8", "write `\"www\"`"),
    ("[[site]]\nroot: \"www\"\n", ":2:7", "write a setting as in `name = \"value\"`"),
    ("[[site]]\nroot = \"www\";\n", ":2:13", "leave out what stands behind the value"),
    ("[[site]\nroot = \"www\"\n", ":1:8", "write `[[site]]`"),
    ("[[site]]\nroot = \"www\n", ":2:12", "end the text with a quotation mark"),
    ("[[site]]\nroot = \"C:\\www\"\n", ":2:12", "the text in single quotes"),
    ("SITEroot = \"www\"\n", ":3:1", "leave one of them out"),
    ("[limits]\nidle-timeout = 30\nSITE", ":2:16", "as in `500ms`, `30s`"),
    ("[limits]\nrequest-body = \"1mbit\"\nSITE", ":2:16", "as in `4096`, `32KiB`"),
    ("[uplink]\norder = \"strpt\"\nSITE", ":2:9", "did you mean `srpt`?"),
    ("[uplink]\norder = \"SJF\"\nSITE", ":2:9", "did you mean `srpt`?"),
    ("[admission]\nresources = [\"site\"]\nSITE", ":2:13", "write `[admission.resources]`"),
    ("SITE[[class]]\nname = \"a\"\nwindow = 3\n", ":5:1", "here that is `slots`"),
    (
        "SITE[[site.route]]\npath = \"/\"\nupstream = \"http://a\"\n",
        ":5:12",
        "`servers = [\"http://a\"]`, and write `app`",
    ),
    ("[admission]\nslots = 2\npolicy = \"strict\"\nSITE", ":3:1", "here that is `share`"),
    ("SITE[[upstream]]\nname = \"a\"\nservers = \"http://a\"\n[upstream.health]\n", ":6:11", "here that is `active`"),
    (
        "admin = \":0\"\nadmin-token = \"0123456789abcdef0123456789abcdef\"\nSITE",
        ":2:15",
        "write a new secret into a file",
    ),
    ("SITE[[rule]]\nclass = \"gold\"\n", ":4:9", "add `[[class]]` with `name = \"gold\"`"),
    ("SITE[[class]]\nname = \"a\"\n[[class]]\nname = \"a\"\n", ":6:8", "give each a name of its own"),
    ("SITEnames = \"a\"\n[[site]]\nroot = \"www\"\nnames = \"a\"\n", ":6:9", "a name leads to one site"),
    ("SITE[[site]]\nroot = \"www\"\n", ":3:1", "give it `names`"),
    ("SITE[[site.route]]\npath = \"api\"\nfiles = true\n", ":4:8", "as in `/api`"),
    ("SITE[[site.route]]\npath = \"/\"\nupstream = \"a\"\n", ":5:12", "add `[[upstream]]` with `name = \"a\"`"),
    ("SITE[[upstream]]\nname = \"a\"\nserver = \"http://a\"\n", ":5:1", "did you mean `servers`?"),
    ("SITE[[upstream]]\nname = \"a\"\nservers = \"a:80\"\n", ":5:11", "write `http://a:80`"),
    ("[[site]]\nroot = \"~/www\"\n", ":2:8", "write the whole path"),
    ("SITEtls-cert = \"c.crt\"\n", ":3:12", "add `tls-key = \"FILE\"`"),
    ("listen = \"https://:0\"\nSITEtls-key = \"c.key\"\n", ":4:11", "add `tls-cert = \"FILE\"`"),
    ("SITEtls-cert = \"no.crt\"\ntls-key = \"c.key\"\n", ":3:12", "check the path"),
    ("SITEtls-cert = \"www\"\ntls-key = \"c.key\"\n", ":3:12", "name a file in it"),
    ("SITEtls-cert = \"c.crt\"\ntls-key = \"other.key\"\n", ":4:11", "the key that the certificate was made for"),
    ("listen = \"https://:0\"\nSITE", ":1:10", "`tls-cert` and `tls-key`"),
    ("SITE[cluster]\nsite = \"a\"\n", ":3:1", "as in `store = \"rediss://user:password@host:6379\"`"),
    ("SITE[cluster]\nstores = \"redis://a\"\nsite = \"a\"\n", ":4:1", "did you mean `store`?"),
    ("SITE[cluster]\nurl = \"redis://a\"\nsite = \"a\"\n", ":4:1", "here that is `store`"),
    ("SITE[cluster]\nstore = \"http://a\"\nsite = \"a\"\n", ":4:9", "write `store = \"redis://HOST:6379\"`"),
    ("redis = \"redis://a\"\nSITE", ":1:1", "`store` and `site` in `[cluster]`"),
    ("dns = \"10.0.0.53\"\nSITE", ":1:1", "here that is `resolver`"),
    ("resolver = \"dns.example\"\nSITE", ":1:12", "as in `10.0.0.53`"),
    ("[resolver]\nservers = [\"10.0.0.53\"]\nSITE", ":1:1", "`resolver = [\"10.0.0.53\"]` at the top of the file"),
    ("SITE[traces]\nendpoint = \"http://a:4318\"\n", ":3:2", "here that is `[tracing]`"),
    ("SITE[tracing]\nurl = \"http://a:4318\"\n", ":4:1", "here that is `endpoint`"),
    ("SITE[tracing]\nendpoint = \"grpc://a:4317\"\n", ":4:12", "write `http://HOST:4318`"),
    ("SITE[tracing]\nendpoint = \"http://a:4318\"\nsample = 2\n", ":5:10", "as in `1%`"),
    ("SITE[shared-cache]\nfolder = \"www\"\n", ":4:1", "here that is `directory`"),
    ("SITEproxy_cache = true\n", ":3:1", "`cache` of a `[[site.route]]`"),
    ("SITE[[site.route]]\npath = \"/\"\nfiles = true\ncache = true\n", ":6:9", "leave it out"),
    (
        "SITE[[site.route]]\npath = \"/\"\nupstream = \"a\"\ncache = { ttl = \"1h\" }\n",
        ":6:11",
        "here that is `lifetime`",
    ),
    ("SITE[[upstream]]\nname = \"a\"\nservers = \"http://a\"\nhedge = true\n", ":6:9", "as in `hedge = \"p95\"`"),
    ("SITE[[upstream]]\nname = \"a\"\nservers = \"http://a\"\nhedge = 95\n", ":6:9", "write `p95`"),
    ("SITE[[upstream]]\nname = \"a\"\nservers = \"http://a\"\npolicy = \"a\"\n", ":6:1", "here that is `balance`"),
    ("SITE[[upstream]]\nname = \"a\"\nservers = \"http://a\"\nservers.b = 1\n", ":6:1", "leave out that value"),
    ("SITEmaintenance = true\n", ":3:15", "as in `maintenance = { file ="),
    ("proxy-protocol = true\nSITE", ":1:18", "as in `proxy-protocol = ["),
    ("SITEtls-cert = \"c.crt\"\ntls-key = \"www/hello.txt\"\n", ":4:11", "`-----BEGIN PRIVATE KEY-----`"),
    (
        "SITEtls-cert = \"www/hello.txt\"\ntls-key = \"c.key\"\n",
        ":3:12",
        "`openssl x509 -inform der -in FILE -out NEW`",
    ),
    (
        "SITEtls-cert = \"c.crt\"\ntls-key = \"c.key\"\nclient-ca = \"c.key\"\n",
        ":5:13",
        "a private key belongs in `tls-key`",
    ),
    ("[acme]\nemail = \"a@b.example\"\nSITE", ":2:1", "here that is `contact`"),
    ("admin = \":0\"\nadmin-token = \"c.key\"\nSITE", ":2:15", "openssl rand -hex 32"),
    ("listen = \":80, :443\"\nSITE", ":1:10", r#"write `[":80", ":443"]`"#),
    ("SITEnames = \"*\"\n", ":3:9", "without `names` the first site answers for every name"),
    ("SITEnames = \"a.example, b.example\"\n", ":3:9", r#"write `["a.example", "b.example"]`"#),
    ("SITEnames = \"a.example/shop\"\n", ":3:9", "leave out the path, which a `[[site.route]]` has"),
    ("[uplink]\nbandwidth = \"10mbit\"\nSITE", ":2:1", "here that is `rate`"),
    ("SITEhsts = true\n", ":3:8", "write it as in `hsts = \"on\"`"),
    ("SITEerror-pages = \"404.html\"\n", ":3:15", "below it a line for each, as in `503 = "),
    ("SITEresponse-headers = { X-A = \"1\" }\n", ":3:22", "write `set = { \"X-A\" = \"VALUE\" }`"),
    ("SITEdeny = \"all\"\n", ":3:8", r#"all addresses are `["0.0.0.0/0", "::/0"]`"#),
    ("SITElimit = { rate = \"20/s\", by = \"ip\" }\n", ":3:31", "did you mean `client`?"),
    ("SITElimit = { rate = 20 }\n", ":3:18", "`20/s` is 20 in a second"),
    ("SITElimit = { burst = 5 }\n", ":3:9", "add `rate = \"10/s\"`"),
    ("[limits]\nrequest-body = 10\nSITE", ":2:16", "write the unit, as in `10MiB`"),
    ("[limits]\nidle-timeout = \"30\"\nSITE", ":2:16", "`30s` is 30 seconds"),
    ("SITE[[site.route]]\npath = \"~ \\\\.php$\"\nfiles = true\n", ":4:8", r"as in `path-regex = '\.php$'`"),
    ("SITE[[site.route]]\npath = \"http://a.example/b\"\nfiles = true\n", ":4:8", "write `/b`"),
    ("SITE[[site.route]]\npath = \"/a\"\nredirect = 301\n", ":5:12", "the status stands in `redirect-status`"),
    ("SITE[[site.route]]\npath = \"/a\"\nrespond = \"gone\"\n", ":5:11", "its text stands in `respond-body`"),
    ("SITE[[class]]\nname = \"a\"\npriority = 1\n", ":5:1", "classes go by their order in the file"),
    ("SITE[[class]]\nname = \"a\"\n[[rule]]\nclass = \"a\"\nip = \"10.0.0.1\"\n", ":7:1", "here that is `client`"),
    (
        "SITE[[upstream]]\nname = \"a\"\nservers = \"http://a, http://b\"\n",
        ":5:11",
        r#"write `["http://a", "http://b"]`"#,
    ),
    ("SITE[[upstream]]\nname = \"a\"\nservers = [{ address = \"http://a\" }]\n", ":5:14", "here that is `url`"),
    (
        "SITE[[upstream]]\nname = \"a\"\nservers = \"http://a\"\ntimeout = \"5s\"\n",
        ":6:1",
        "here that is `idle-timeout`",
    ),
    (
        "SITE[[upstream]]\nname = \"a\"\nservers = \"http://a\"\nkeepalive = 32\n",
        ":6:1",
        "here that is `keep-connections`",
    ),
    ("SITE[[upstream]]\nname = \"a\"\nservers = \"https://a\"\ninsecure = true\n", ":6:1", "here that is `tls-verify`"),
    (
        "SITE[[upstream]]\nname = \"a\"\nservers = \"http://a\"\nproxy-protocol = true\n",
        ":6:18",
        "write it as in `proxy-protocol = \"v2\"`",
    ),
    (
        "SITE[[upstream]]\nname = \"a\"\nservers = \"http://a\"\nactive = { path = \"/\", interval = 5 }\n",
        ":6:24",
        "here that is `every`",
    ),
    ("SITE[cluster]\nstore = \"redis://a\"\nsite = \"s\"\npassword = \"x\"\n", ":6:1", "here that is `store`"),
    ("SITE[cluster]\nstore = \"redis://a/x\"\nsite = \"s\"\n", ":4:9", "Invalid database number\n"),
    ("[compression]\ngzip = true\nSITE", ":2:1", "here that is `codings`"),
    ("[access-log]\ntarget = \"stdout\"\nSITE", ":2:10", "write `-` for standard output"),
    ("[access-log]\ntarget = \"-\"\nformat = \"common\"\nSITE", ":3:10", "did you mean `combined`?"),
    ("[files]\nindex = \"index.html index.php\"\nSITE", ":2:9", r#"write `["index.html", "index.php"]`"#),
    ("[[site]]\nroot = \"\"\n", ":2:8", "write `.` for the folder that this is in"),
    ("[[site]]\nroot = 'www\"\n", ":2:13", "end the text with the mark that it begins with"),
    ("// the site\nSITE", ":1:", "a comment begins with `#`"),
    ("[[site]]\nroot = “www”\n", ":2:8", "write `\"www\"`"),
    ("[[site]]\nroot = null\n", ":2:8", "leave the line out"),
    ("[files]\nlisting = True\nSITE", ":2:11", "in small letters"),
    ("SITEnames = [\"a\" \"b\"]\n", ":3:14", "divide the values by commas"),
    ("[[site]]\nnames = [\"a\",\nroot = \"www\"\n", ":3:", "end the list before this line with `]`"),
    ("[[site]]\n= \"www\"\n", ":2:1", "write the name of the setting before `=`"),
    ("SITE[users]\nann = \"secret\"\n", ":4:1", "which `file = \"PATH\"` names"),
];

/// Files that can be served, of which `check` warns.
const WARNINGS: &[(&str, &str, &str)] = &[
    ("SITEtls-cert = \"old.crt\"\ntls-key = \"old.key\"\n", ":3:12", "renew it"),
    ("admin = \":9090\"\nSITE", ":1:9", "write `127.0.0.1:9090`"),
    ("SITE[shared-cache]\ndisk = \"1GiB\"\n", ":4:8", "as in `directory = \"/var/cache/serpent\"`"),
    ("[tracing]\nsample = \"1%\"\nSITE", ":2:10", "add `endpoint = \"http://HOST:4318\"`"),
    ("[admission]\nslots = 20\nSITE", ":2:9", "add a route with an `upstream`"),
    ("[uplink]\ndevice = \"eth0\"\nSITE", ":2:10", "add `enforce = \"kernel\"`"),
    ("listen = \":443\"\nSITE", ":1:10", "or write `http://[::]:443` if that is meant"),
    ("SITE[[site.route]]\npath = \"/a/*\"\nfiles = true\n", ":4:8", "write `path = \"/a/\"`"),
    (
        "[[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"a\"\n[[upstream]]\nname = \"a\"\n\
         servers = \"http://localhost:8080\"\n",
        ":7:11",
        "name the address of the other server",
    ),
];

/// Words of libraries and of the source code.
const JARGON: &[&str] = &["panicked", "invalid type", "unknown field", "RUST_BACKTRACE", "struct ", "InvalidClient"];

/// A folder with all that the lists name.
fn folder() -> tempfile::TempDir {
    let folder = site();
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    for name in ["c", "other"] {
        certificate(folder.path(), name, &["localhost"]);
    }
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(2025, 1, 1);
    params.not_before = rcgen::date_time_ymd(2024, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    write("old.crt", params.self_signed(&key).unwrap().pem().as_bytes());
    write("old.key", key.serialize_pem().as_bytes());
    write("ok.toml", b"[[site]]\nroot = \"www\"\n");
    write("Caddyfile", b"a.example {\n  file_server\n}\n");
    write("nginx.conf", b"server {\n  listen 80;\n}\n");
    write("site.yaml", b"site:\n  - root: www\n");
    write("utf-16.toml", b"\xff\xfea\0=\0b\0");
    write("latin-1.toml", b"\n# \xfc\n");
    write("bom.toml", b"\xef\xbb\xbf[[site]]\nroot = \"nowhere\"\n");
    folder
}

/// Runs the program to its end, and returns the exit code and what it says. It fails if something is served.
fn said(mut command: Command, folder: &Path) -> (Option<i32>, String) {
    command.current_dir(folder).env_remove("SERPENT_LOG").stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut started = [0];
    if child.stdout.take().unwrap().read(&mut started).unwrap() > 0 {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("{command:?} serves");
    }
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_serpent"))
}

fn assert_names(what: &str, said: &str, place: &str, mend: &str) {
    assert!(said.contains(place), "{what}: `{place}` is not named in\n{said}");
    assert!(said.contains(mend), "{what}: `{mend}` is missing from\n{said}");
    assert!(!JARGON.iter().any(|word| said.contains(word)), "{what}:\n{said}");
}

#[test]
fn a_mistake_on_the_command_line_is_named_with_its_mend() {
    let folder = folder();
    for (args, place, mend) in COMMANDS {
        let mut command = program();
        command.args(*args);
        let (code, said) = said(command, folder.path());
        assert!(matches!(code, Some(1 | 2)), "{args:?}: {code:?}\n{said}");
        assert_names(&format!("{args:?}"), &said, place, mend);
    }
}

#[test]
fn a_mistake_in_the_file_is_shown_at_its_place_with_its_mend() {
    let folder = folder();
    let written = |text: &str| {
        fs::write(folder.path().join("x.toml"), text.replace("SITE", "[[site]]\nroot = \"www\"\n")).unwrap();
    };
    for (text, place, mend) in FILES {
        written(text);
        let mut command = program();
        command.args(["serve", "--config", "x.toml"]);
        let (code, said) = said(command, folder.path());
        assert_eq!(code, Some(2), "{text}\n{said}");
        assert_names(text, &said, place, mend);
        assert_eq!(said.matches("error: ").count(), 1, "{text}: a mistake is one error\n{said}");
        assert!(!said.contains("warning: "), "{text}\n{said}");
    }
    for (text, place, mend) in WARNINGS {
        written(text);
        let output = program().args(["check", "x.toml"]).current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.starts_with("warning: "), "{text}\n{said}");
        assert_names(text, &said, place, mend);
    }
}

#[test]
fn an_address_that_is_taken_is_named_with_another() {
    let folder = folder();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for flag in ["--listen", "--admin"] {
        let mut command = program();
        command.args(["serve", "www", flag, &address.to_string()]);
        if flag == "--admin" {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        let (code, said) = said(command, folder.path());
        assert_eq!(code, Some(1), "{said}");
        let mend = format!("`ss -ltnp 'sport = :{}'` names it; `{flag} 127.0.0.1:", address.port());
        assert_names(flag, &said, &format!("cannot listen on {address}"), &mend);
    }
}

/// The program as a user without privileges runs it.
fn unprivileged(folder: &Path) -> Command {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        return program();
    }
    let copy: PathBuf = folder.join("serpent");
    if !copy.exists() {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        // A file that this process has open for writing cannot be run.
        assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_serpent")).arg(&copy).status().unwrap().success());
    }
    let mut command = Command::new(copy);
    command.uid(65_534).gid(65_534);
    command
}

#[test]
fn what_a_user_may_not_do_is_named_with_the_command_that_allows_it() {
    let folder = folder();
    fs::create_dir(folder.path().join("closed")).unwrap();
    fs::write(folder.path().join("closed.toml"), "").unwrap();
    fs::write(
        folder.path().join("key.toml"),
        "[[site]]\nroot = \"www\"\ntls-cert = \"c.crt\"\ntls-key = \"other.key\"\n",
    )
    .unwrap();
    for name in ["closed", "closed.toml", "other.key"] {
        fs::set_permissions(folder.path().join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    for (args, place, mend) in [
        (&["serve", "closed"][..], "`closed` may not be read", "`namei -l closed`"),
        (&["serve", "--config", "closed.toml"], "--> closed.toml", "(chmod, chown)"),
        (&["serve", "--config", "key.toml"], "--> key.toml:4:11", "other.key` as root"),
    ] {
        let mut command = unprivileged(folder.path());
        command.args(args);
        let (code, said) = said(command, folder.path());
        assert_eq!(code, Some(2), "{said}");
        assert_names(&format!("{args:?}"), &said, place, mend);
    }
    let first_port = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    if first_port.is_ok_and(|port| port.trim().parse::<u16>().is_ok_and(|port| port > 81)) {
        let mut command = unprivileged(folder.path());
        command.args(["serve", "www", "--listen", "127.0.0.1:81"]);
        let (code, said) = said(command, folder.path());
        assert_eq!(code, Some(1), "{said}");
        assert_names("port 81", &said, "cannot listen on 127.0.0.1:81", "`sudo setcap cap_net_bind_service=+ep ");
        assert!(said.contains("`--listen 127.0.0.1:8081` needs none"), "{said}");
    }
}

#[test]
fn a_reload_with_a_broken_file_says_why_and_changes_nothing() {
    let folder = folder();
    let file = folder.path().join("ok.toml");
    let serpent = Serpent::start(&["serve", "--config", file.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    fs::write(&file, "[[site]]\nrot = \"www\"\n").unwrap();
    serpent.signal(Signal::HUP);
    let said = serpent.wait_for_stderr("did you mean `root`?");
    assert_names("reload", &said, "ok.toml:2:1", "the old configuration stays");
    serpent.assert_alive();
}

#[test]
fn a_warning_names_its_place_in_the_log() {
    let folder = folder();
    let file = folder.path().join("ok.toml");
    fs::write(&file, "[[site]]\nroot = \"www\"\nhttps-redirect = true\n").unwrap();
    let serpent = Serpent::start(&["serve", "--config", file.to_str().unwrap(), "--listen", "127.0.0.1:0"]);
    let said = serpent.wait_for_stderr("`https-redirect` has no effect");
    assert_names("warning", &said, "ok.toml:3:18: ", "give the site a certificate");
}

/// `script` gives the program a terminal.
#[cfg(target_os = "linux")]
#[test]
fn on_a_terminal_five_lines_say_what_is_served_and_what_is_next_and_nothing_is_warned_of() {
    let folder = folder();
    let program = env!("CARGO_BIN_EXE_serpent");
    for (args, what, next) in [
        ("--listen 127.0.0.1:0", "", "next   there is no index.html here"),
        ("www --listen 127.0.0.1:0", "/www", "next   `--admin 127.0.0.1:9090` shows"),
        ("--upstream http://127.0.0.1:1 --listen 127.0.0.1:0", "http://127.0.0.1:1", "next   `--slots 20`"),
    ] {
        let Some(mut script) = tool("script") else { return };
        let mut child = script
            .args(["-qfec", &format!("exec {program} serve {args}"), "/dev/null"])
            .current_dir(folder.path())
            .env_remove("SERPENT_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = Vec::new();
        let mut output = child.stdout.take().unwrap();
        while said.iter().filter(|byte| **byte == b'\n').count() < 5 {
            let mut bytes = [0; 1024];
            let length = output.read(&mut bytes).unwrap();
            assert!(length > 0, "{}", String::from_utf8_lossy(&said));
            said.extend_from_slice(&bytes[..length]);
        }
        // The terminal is closed, and so the server ends.
        child.kill().unwrap();
        child.wait().unwrap();
        let address =
            String::from_utf8_lossy(&said).lines().next().unwrap().rsplit_once("http://").unwrap().1.to_owned();
        let begin = Instant::now();
        while TcpStream::connect(address.trim()).is_ok() {
            assert!(begin.elapsed() < PATIENCE, "the server goes on without its terminal");
            std::thread::yield_now();
        }
        let said = String::from_utf8(said).unwrap();
        let lines: Vec<_> = said.lines().collect();
        assert_eq!(lines.len(), 5, "{said}");
        assert!(lines[0].starts_with("serpent: serving ") && lines[0].contains(what), "{said}");
        for (line, start) in lines.iter().skip(1).zip(["  order  ", "  reach  ", "  next   ", "  stop   "]) {
            assert!(line.starts_with(start), "{said}");
        }
        assert!(lines[3].contains(next), "{said}");
    }
}

#[test]
fn without_a_terminal_there_is_one_line_and_no_warning() {
    let folder = folder();
    let serpent = Serpent::serve(&folder.path().join("www"), &[]);
    serpent.signal(Signal::TERM);
    let (status, said) = serpent.wait();
    assert!(status.success());
    assert_eq!(said, "", "nothing is warned of");
}

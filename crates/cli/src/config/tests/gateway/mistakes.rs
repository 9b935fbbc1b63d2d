//! Mistakes about a gateway, each with its place and what is said of it.

use super::*;

/// One mistake each, after a gateway of eight lines, and the line and column it is shown at with a part of what is said.
const BROKEN: &[(&str, &str, &str)] = &[
    // Routes.
    ("[[site.route]]\npath = \"/api\"\nupstream = \"app\"\n", ":9:8", "no request reaches this route: `/` before it"),
    ("header = { A = true }\ncache = true\n", ":9:9", "found by its address"),
    ("unless = { client = \"10.0.0.0/8\" }\ncache = true\n", ":9:9", "found by its address"),
    ("[[upstream]]\nname = \"app\"\nservers = [\"http://a\"]\n", ":9:8", "there are two upstreams `app`"),
    ("replace-prefix = \"x\"\n", ":8:18", "a path starts with `/`"),
    ("replace-prefix = \"/x\"\n", ":8:18", "do not end alike"),
    ("request-headers = { set = { \"X Y\" = \"a\" } }\n", ":8:29", "is not the name of a header field"),
    ("request-headers = { set = { \"X\" = \"a\\n\" } }\n", ":8:35", "a header cannot hold"),
    ("request-headers = { remove = [\"Connection\"] }\n", ":8:31", "says how a message is framed"),
    ("request-headers = { set = { Host = \"a\" } }\n", ":8:29", "set `keep-host`"),
    ("response-headers = { add = { Trailer = \"a\" } }\n", ":8:30", "says how a message is framed"),
    ("resource = \"cpu\"\n", ":8:12", "there is no resource `cpu`"),
    ("files = true\n", ":8:9", "a route leads to one place"),
    ("redirect = \"/x\"\n", ":8:12", "a route leads to one place"),
    ("redirect-status = 308\n", ":8:19", "this route has none"),
    ("path-glob = \"/*\"\n", ":8:13", "a route has one pattern"),
    ("upstrem = \"x\"\n", ":8:1", "did you mean `upstream`?"),
    // Access.
    ("allow = [\"10.0.0.1/8\"]\n", ":8:10", "is an address within a network"),
    ("allow = [\"::1\"]\ndeny = [\"10.0.0.0/8\", \"::1\"]\n", ":9:23", "`::1` is both allowed and denied"),
    ("forward-auth = { upstream = \"apps\" }\n", ":8:29", "did you mean `app`?"),
    ("forward-auth = { path = \"/a\" }\n", ":8:16", "this table has no `upstream`"),
    ("forward-auth = { upstream = \"app\", path = \"verify\" }\n", ":8:43", "`verify` is no path"),
    ("forward-auth = { upstream = \"app\", copy-headers = \"Host\" }\n", ":8:51", "is not changed by rules"),
    ("forward-auth = \"app\"\n", ":8:16", "`app` is no value of `forward-auth`"),
    ("cors = { methods = \"PUT\" }\n", ":8:8", "this table names no origin"),
    ("cors = { origins = \"https://a/\" }\n", ":8:20", "`https://a/` is no origin"),
    ("cors = { origins = [\"https://a\", \"*\"] }\n", ":8:34", "`*` stands for all origins"),
    ("cors = { origins = \"*\", credentials = true }\n", ":8:39", "no browser sends passwords"),
    ("cors = { origins = \"*\", methods = \"A B\" }\n", ":8:35", "`A B` is no method"),
    ("cors = { origins = \"*\", max-age = \"long\" }\n", ":8:35", "is not a duration"),
    ("require = { user = true }\n", ":8:20", "nobody has a password"),
    ("require = { key = \"gold\" }\n", ":8:19", "there are no keys"),
    ("require = { certificate = true }\n", ":8:27", "clients are not asked for a certificate"),
    ("require = { client = true }\n", ":8:22", "takes a text or a list of texts"),
    ("require = { client = \"::1\", satisfy = \"one\" }\n", ":8:39", "`one` is neither `all` nor `any`"),
    ("require = { client = \"::1\", realm = \"a\" }\n", ":8:37", "`realm` has no effect"),
    ("require = { satisfy = \"any\" }\n", ":8:11", "this table requires nothing"),
    ("require = { usr = true }\n", ":8:13", "did you mean `user`?"),
    ("require = \"on\"\n", ":8:11", "`on` is no value of `require`"),
    ("require = true\n", ":8:11", "expected \"off\" or a table"),
    // Limits.
    ("limit = \"10/s\"\n", ":8:9", "`10/s` is no value of `limit`"),
    ("limit = { rate = \"10\" }\n", ":8:18", "`10` is not a rate of requests"),
    ("limit = { rate = \"0/s\" }\n", ":8:18", "`0/s` is not a rate of requests"),
    ("limit = { rate = \"1/d\" }\n", ":8:18", "`1/d` is not a rate of requests"),
    ("limit = { rate = \"1/s\", burst = 0 }\n", ":8:33", "from 1 to 1000000"),
    ("limit = { at-once = 0 }\n", ":8:21", "from 1 to 1000000"),
    ("limit = { at-once = 1, burst = 3 }\n", ":8:32", "`burst` is about a rate"),
    ("limit = { at-once = 1, by = \"host\" }\n", ":8:29", "`host` is not one of `client`, `key`, `class`"),
    ("limit = { at-once = 1, by = [\"all\", \"path\"] }\n", ":8:30", "`all` stands alone"),
    ("limit = { at-once = 1, by = [\"client\", \"header X Y\"] }\n", ":8:40", "`X Y` is not the name of a header"),
    ("limit = { at-once = 1, by = \"key\" }\n", ":8:29", "there are no keys"),
    ("limit = { bytes = \"1MB\" }\n", ":8:19", "`1MB` is not a rate of bytes"),
    ("limit = { bytes = \"0B/s\" }\n", ":8:19", "`0B/s` is not a rate of bytes"),
    ("limit = { at-once = 1, bytes-burst = \"1MB\" }\n", ":8:38", "`bytes-burst` is about bytes"),
    ("limit = { by = \"class\" }\n", ":8:9", "this table limits nothing"),
    ("request-body = \"lots\"\n", ":8:16", "`lots` is not a size"),
    ("rewrite = \"/x\"\n", ":8:11", "a route leads to one place"),
    ("respond = 200\n", ":8:11", "a route leads to one place"),
    ("respond-body = \"x\"\n", ":8:16", "is about `respond`, and this route has none"),
    // Classes.
    ("[[class]]\nweight = 2\n", ":8:1", "this class has no `name`"),
    ("[[class]]\nname = \"a b\"\n", ":9:8", "cannot be a name here"),
    ("[[class]]\nname = \"a\"\nweight = 0\n", ":10:10", "from 1 to"),
    ("[[class]]\nname = \"a\"\norder = \"sjf\"\n", ":10:9", "`sjf` is not an order"),
    ("[[class]]\nname = \"a\"\ncpu-priority = \"rr 100\"\n", ":10:16", "is not a priority"),
    (
        "[[class]]\nname = \"a\"\nobjective = { p95 = \"1s\", p99 = \"2s\" }\n",
        ":10:33",
        "an objective has one percentile",
    ),
    ("[[class]]\nname = \"a\"\nobjective = { error-rate = 1 }\n", ":10:28", "give percent"),
    ("[[class]]\nname = \"a\"\nrefuse = { status = 200 }\n", ":10:21", "is not a status for a refusal"),
    ("[[class]]\nname = \"a\"\nrefuse = { page = \"none.html\" }\n", ":10:19", "`none.html` does not exist"),
    ("default-class = \"x\"\n", ":8:1", "there is no setting `default-class` in `[[site.route]]`"),
    // Rules.
    ("[[rule]]\npath = \"/a\"\n", ":8:1", "this rule has no `class`"),
    ("[[rule]]\nclass = \"gold\"\n", ":9:9", "there is no class `gold`"),
    ("[[rule]]\nclass = \"defualt\"\n", ":9:9", "did you mean `default`?"),
    ("[[rule]]\nclass = \"default\"\npath = []\n", ":10:8", "an empty list matches nothing"),
    ("[[rule]]\nclass = \"default\"\npath = true\n", ":10:8", "takes a text or a list of texts"),
    ("[[rule]]\nclass = \"default\"\nmethod = \"get\"\n", ":10:10", "write `GET`"),
    ("[[rule]]\nclass = \"default\"\nclient = [\"10.0.0.1/8\"]\n", ":10:11", "write `10.0.0.0/8`"),
    ("[[rule]]\nclass = \"default\"\npath-glob = \"*.php\"\n", ":10:13", "`**/*.php`"),
    ("[[rule]]\nclass = \"default\"\npath-regex = \"(\"\n", ":10:14", "cannot be read"),
    ("[[rule]]\nclass = \"default\"\nextension = \"tar.gz\"\n", ":10:13", "is not a file extension"),
    ("[[rule]]\nclass = \"default\"\ncookie = { id = false }\n", ":10:17", "cannot ask that something is not there"),
    (
        "[[rule]]\nclass = \"default\"\nheader = { A = { regexp = \"a\" } }\n",
        ":10:18",
        "there is no setting `regexp` here",
    ),
    ("[[rule]]\nclass = \"default\"\nheader = { A = { regex = \"[\" } }\n", ":10:26", "cannot be read"),
    ("[[rule]]\nclass = \"default\"\nuser = true\n", ":10:8", "nobody has a password"),
    ("[[rule]]\nclass = \"default\"\nkey = \"gold\"\n", ":10:7", "there are no keys"),
    ("[[rule]]\nclass = \"default\"\ncertificate = true\n", ":10:15", "clients are not asked for a certificate"),
    ("[[rule]]\nclass = \"default\"\nraises-session = true\n", ":10:18", "there are no sessions to raise"),
    ("[[rule]]\nclass = \"default\"\nresource = \"cpu\"\n", ":10:12", "there is no resource `cpu`"),
    (
        "[[rule]]\nclass = \"default\"\n[[rule]]\nclass = \"default\"\n",
        ":11:9",
        "no request reaches this rule: `rule 1`",
    ),
    (
        "[[rule]]\nclass = \"default\"\nname = \"a\"\nhost = \"b\"\n[[rule]]\nclass = \"default\"\nname = \"a\"\n",
        ":14:8",
        "there are two rules `a`",
    ),
    // Slots.
    ("[admission]\nshare = \"fair\"\n", ":9:9", "`fair` is not one of `strict`"),
    ("[admission]\nslots = 0\n", ":9:9", "from 1 to"),
    ("[admission]\nshare = \"shared\"\n", ":9:9", "there is no number of them"),
    ("[admission]\nresources = { \"a b\" = 3 }\n", ":9:15", "cannot be a name here"),
    ("[admission]\nresources = { cpu = \"many\" }\n", ":9:21", "or `off`"),
    ("[admission]\nresources = { cpu = [3] }\n", ":9:21", "a number of requests"),
    ("[admission]\nresources = { cpu = { windw = 3 } }\n", ":9:23", "there is no setting `windw` here"),
    ("[admission]\nresources = { cpu = { window = 0 } }\n", ":9:32", "from 1 to"),
    ("[admission]\nresources = { cpu = { window = 3, least = 4 } }\n", ":9:32", "is not from 4 to 1000"),
    ("[admission]\nresources = { cpu = { window = 3, most = 2 } }\n", ":9:32", "is not from 1 to 2"),
    ("[admission]\nresources = { cpu = { least = 3, most = 2 } }\n", ":9:31", "is more than the most, 2"),
    ("[admission]\nresources = { cpu = { most = \"off\" } }\n", ":9:30", "is no limit"),
    ("[admission]\nresources = { cpu = { probe = \"a\" } }\n", ":9:31", "is not a path"),
    ("[admission]\nresources = { cpu = { probe = \"/a\", upstream = \"b\" } }\n", ":9:48", "no upstream `b`"),
    ("[admission]\nresources = { cpu = { probe = \"/a\", host = \"http://b\" } }\n", ":9:44", "is not a host"),
    (
        "[admission]\nresources = { cpu = { probe = \"/a\" } }\n[[upstream]]\nname = \"b\"\nservers = [\"http://b\"]\n",
        ":9:31",
        "not said which upstream",
    ),
    ("[admission]\nwindows = \"aimd\"\n", ":9:11", "`aimd` is not one of `fixed`"),
    ("[admission]\nwindows = \"probe\"\nresources = { cpu = 3 }\n", ":10:21", "which page probes this resource"),
    (
        "[admission]\nwindows = \"probe\"\nresources = { cpu = { window = 3, probe = \"/a\" } }\n",
        ":10:21",
        "there is no bound",
    ),
    ("[admission]\nshrink-above = -1\n", ":9:16", "from 0 to 1000"),
    ("[admission]\ngrow-below = 1\n", ":9:14", "from -1000 to 0"),
    (
        "[admission]\nshare = \"shared\"\nwindows = \"knee\"\nresources = { cpu = { window = 6, least = 2 } }\nslots = 9\n\
         [[class]]\nname = \"a\"\nreserved = 2\n[[class]]\nname = \"b\"\n",
        ":15:12",
        "the reserves leave no slot of `cpu`",
    ),
    (
        "[admission]\nshare = \"shared\"\nslots = 2\n[[class]]\nname = \"a\"\nreserved = 2\n[[class]]\nname = \"b\"\n\
         [[rule]]\nclass = \"a\"\nhost = \"a\"\n",
        ":13:12",
        "the reserves of the classes leave no slot",
    ),
    ("[uplink]\nshare = \"half\"\n", ":9:9", "or `off`"),
    ("[uplink]\nshare = \"weighted\"\nenforce = \"kernel\"\n", ":9:9", "the kernel's bands keep a strict order"),
    (
        "[uplink]\nshare = \"shared\"\n[[class]]\nname = \"a\"\nreserved = 2\n[[class]]\nname = \"b\"\n\
         [[rule]]\nclass = \"a\"\nhost = \"a\"\n",
        ":12:12",
        "the reserves leave nothing of the uplink",
    ),
    // Users, keys, sessions and certificates.
    ("[users]\n", ":8:1", "`[users]` has no `file`"),
    ("[users]\nfile = \"none\"\n", ":9:8", "`none` does not exist"),
    ("[keys]\nfile = \"www\"\n", ":9:8", "is not a file"),
    ("[keys]\nfile = \"serpent.toml\"\nheader = \"off\"\n", ":10:10", "neither in a header nor in the query"),
    ("[session]\ncookie = \"a b\"\n", ":9:10", "is not the name of a cookie"),
    ("[session]\nlifetime = \"0s\"\n", ":9:12", "above zero"),
    ("[session]\nsecret = \"short\"\n", ":9:10", "too short: 5 bytes"),
    ("[limits]\nbody-directory = \"none\"\n", ":9:18", "`none` does not exist"),
    // Several gateways.
    ("[cluster]\nsite = \"a\"\n", ":8:1", "has no `store`"),
    ("[cluster]\nstore = \"redis://a\"\nsite = \"a b\"\n", ":10:8", "the name of a site has"),
    ("[cluster]\nstore = \"redis://a,b\"\nsite = \"a\"\n", ":9:9", "several hosts are those"),
    ("[cluster]\nstore = \"redis+sentinel://a\"\nsite = \"a\"\n", ":9:9", "name of the master"),
    ("[cluster]\nstore = \"rediss://a\"\nsite = \"a\"\ntls-cert = \"x\"\n", ":11:12", "has no key"),
    // One line of several gateways.
    ("[uplink]\nrate = \"1gbit\"\nline = \"a\"\n", ":10:8", "store of `[cluster]`, and there is none"),
    ("[cluster]\nstore = \"redis://a\"\nsite = \"a\"\n[uplink]\nline = \"a\"\n", ":12:8", "has to be given"),
    (
        "[cluster]\nstore = \"redis://a\"\nsite = \"a\"\n[uplink]\nrate = \"1gbit\"\nline = \"a b\"\n",
        ":13:8",
        "the name of a line has",
    ),
    (
        "[cluster]\nstore = \"redis://a\"\nsite = \"a\"\n[uplink]\nrate = \"1gbit\"\nline = \"a\"\nenforce = \"off\"\n",
        ":13:8",
        "only the server itself",
    ),
    (
        "[cluster]\nstore = \"redis://a\"\nsite = \"a\"\n[uplink]\nrate = \"1gbit\"\nline = \"a\"\nshare = \"shared\"\n\
         [[class]]\nname = \"gold\"\nreserved = 2\n[admission]\nslots = 9\n",
        ":14:9",
        "leave `reserved` out",
    ),
    (
        "[cluster]\nstore = \"redis://a\"\nsite = \"a\"\n[uplink]\nrate = \"1gbit\"\nline = \"a\"\nshare = \"fixed\"\n",
        ":14:9",
        "can be kept for a class",
    ),
];

#[test]
fn every_kind_of_mistake_about_a_gateway_is_found_at_its_place() {
    for (text, place, part) in BROKEN {
        let said = said_of(&format!("{GATEWAY}{text}"));
        assert!(said.contains(part), "{text}\nsaid:\n{said}\nbut not: {part}");
        assert!(said.contains(&format!("--> serpent.toml{place}")), "{text}\nsaid:\n{said}\nbut not at {place}");
        assert_eq!(said.matches("error: ").count(), 1, "one mistake is one problem:\n{said}");
    }
}

#[test]
fn mistakes_about_upstreams() {
    let upstream =
        |text: &str| format!("[[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n[[upstream]]\n{text}");
    for (text, place, part) in [
        ("servers = [\"http://a\"]\n", ":5:1", "this upstream has no `name`"),
        ("name = \"app\"\n", ":5:1", "this upstream has no server"),
        ("name = \"ap\"\nservers = [\"http://a\"]\n", ":4:12", "did you mean `ap`?"),
        ("name = \"app\"\nservers = [\"a:80\"]\n", ":7:12", "write `http://a:80`, or `https://` for TLS"),
        ("name = \"app\"\nservers = [\"http://a\", \"http://A\"]\n", ":7:24", "this server is given twice"),
        (
            "name = \"app\"\nservers = [\"http://a\"]\ntls-verify = false\n",
            ":8:14",
            "no server of this upstream speaks it",
        ),
        ("name = \"app\"\nservers = [\"https://a\"]\ntls-cert = \"c\"\n", ":8:12", "this certificate has no key"),
        ("name = \"app\"\nservers = [\"https://a\"]\ntls-ca = \"c\"\n", ":8:10", "`c` does not exist"),
        ("name = \"app\"\nservers = [\"https://a\"]\ntls-ca = \"tool\"\n", ":8:10", "no certificate in `tool`"),
        ("name = \"app\"\nservers = [\"http://a\"]\nretries = -1\n", ":8:11", "or `off`"),
        ("name = \"app\"\nservers = [\"http://a\"]\nresponse-head = \"1GiB\"\n", ":8:17", "from 1KiB to 1MiB"),
        (
            "name = \"app\"\nservers = [\"http://a\"]\nretry-statuses = [503, 200]\n",
            ":8:24",
            "`200` is no error status",
        ),
        (
            "name = \"app\"\nservers = [{ url = \"http://_a._tcp.b\", weight = 2 }]\n",
            ":7:49",
            "the records of a service have the weights",
        ),
        ("name = \"app\"\nservers = [\"http://a\"]\nhedge = \"p99\"\n", ":8:9", "write `p95`, a time as in `200ms`"),
        ("name = \"app\"\nservers = [\"http://a\"]\nhedge-budget = \"0%\"\n", ":8:16", "percent from 1 to 100"),
        ("name = \"app\"\nservers = [\"http://a\"]\nproxy-protocol = \"v3\"\n", ":8:18", "write `v1`, `v2` or `off`"),
        ("name = \"app\"\nservers = [\"http://a\"]\nretry-budget = \"0%\"\n", ":8:16", "percent from 1 to 100"),
        ("name = \"app\"\nservers = [\"http://a\"]\noutliers = { slower = 1 }\n", ":8:23", "from 1.1 to 100"),
        ("name = \"app\"\nservers = [\"http://a\"]\noutliers = { most = 50 }\n", ":8:21", "percent from 1 to 100"),
        (
            "name = \"app\"\nservers = [\"http://a\"]\nbalance = \"leastconn\"\n",
            ":8:11",
            "is called `least-loaded` here",
        ),
        (
            "name = \"app\"\nservers = [\"http://a\"]\nhash-bound = \"125%\"\n",
            ":8:14",
            "is about keys, and this upstream has none",
        ),
        ("name = \"app\"\nservers = [\"http://a\"]\nhash-bound = 2\n", ":8:14", "give percent of the fair part"),
        ("name = \"app\"\nservers = [\"http://a\"]\nsticky = \"a b\"\n", ":8:10", "is not the name of a cookie"),
        ("name = \"app\"\nservers = [\"http://a\"]\nsticky = {}\n", ":8:10", "this table has no `cookie`"),
        (
            "name = \"app\"\nservers = [\"http://a\"]\nsticky = { cookie = \"a\", secret = \"none\" }\n",
            ":8:35",
            "`none` does not exist",
        ),
        ("name = \"app\"\nservers = [\"http://a\"]\nslow-start = \"fast\"\n", ":8:14", "or `off`"),
        ("name = \"app\"\nservers = [{ weight = 2 }]\n", ":7:12", "this server has no `url`"),
        ("name = \"app\"\nservers = [{ url = \"http://a\", weight = 0 }]\n", ":7:41", "from 1 to 1000"),
        (
            "name = \"app\"\nservers = [{ url = \"http://a\", backup = true, priority = 2 }]\n",
            ":7:58",
            "a backup comes after all priorities",
        ),
        ("name = \"app\"\nservers = [{ url = \"http://a\", wieght = 2 }]\n", ":7:32", "did you mean `weight`?"),
        (
            "name = \"app\"\nservers = [\"http://a\"]\nactive = { every = \"1s\" }\n",
            ":8:10",
            "active checks need a `path`",
        ),
        ("name = \"app\"\nservers = [\"http://a\"]\nactive = { path = \"a\" }\n", ":8:19", "is not a path"),
        (
            "name = \"app\"\nservers = [\"http://a\"]\nactive = { path = \"/\", statuses = \"2xx\" }\n",
            ":8:35",
            "range of statuses",
        ),
        ("name = \"app\"\nworkers = { processes = 2 }\n", ":7:11", "these workers have no `command`"),
        ("name = \"app\"\nworkers = { command = [] }\n", ":7:23", "the command is empty"),
        ("name = \"app\"\nworkers = { command = [\"/bin/sh\"] }\n", ":7:23", "where to listen"),
        ("name = \"app\"\nworkers = { command = [\"/bin/sh\", \"{sockt}\"] }\n", ":7:35", "did you mean `{socket}`?"),
        ("name = \"app\"\nworkers = { command = [\"./tool\", \"{port}\"] }\n", ":7:24", "chmod +x"),
        ("name = \"app\"\nworkers = { command = [\"no-such-tool\", \"{port}\"] }\n", ":7:24", "in the folders of PATH"),
        (
            "name = \"app\"\nworkers = { command = [\"/bin/sh\", \"{port}\"] }\nservers = [\"http://a\"]\n",
            ":8:12",
            "exclude each other",
        ),
        (
            "name = \"app\"\nworkers = { command = [\"/bin/sh\", \"{port}\"], environment = { \"A=B\" = \"\" } }\n",
            ":7:62",
            "cannot be a variable",
        ),
    ] {
        let said = said_of(&upstream(text));
        assert!(said.contains(part), "{text}\nsaid:\n{said}\nbut not: {part}");
        assert!(said.contains(&format!("--> serpent.toml{place}")), "{text}\nsaid:\n{said}\nbut not at {place}");
        assert_eq!(said.matches("error: ").count(), 1, "one mistake is one problem:\n{said}");
    }
}

#[test]
fn mistakes_about_routes_without_an_upstream() {
    for (text, place, part) in [
        ("[[site]]\n[[site.route]]\nfiles = true\n", ":2:1", "this route has no `path`"),
        ("[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\n", ":3:1", "this route leads nowhere"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nfiles = true\n", ":4:9", "this site has no files"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nredirect = \"{url}\"\n", ":4:12", "there is no `{url}`"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nredirect = \"//b\"\n", ":4:12", "leaves open where"),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nredirect = \"/a\"\nredirect-status = 304\n",
            ":5:19",
            "`304` is no status of a redirect",
        ),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nmethod = \"GET POST\"\nrespond = 200\n", ":4:10", "`GET POST`"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nmethod = []\nrespond = 200\n", ":4:10", "matches nothing"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nheader = { \"a b\" = true }\nrespond = 200\n", ":4:12", "`a b`"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\ncookie = {}\nrespond = 200\n", ":3:8", "`cookie` of this route"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nunless = {}\nrespond = 200\n", ":4:10", "`unless` has no condition"),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nunless = { path = \"a\" }\nrespond = 200\n",
            ":4:19",
            "starts with `/`",
        ),
        ("[[site]]\nroot = \"www\"\nerror-pages = { 200 = \"/a\" }\n", ":3:17", "`200` is no status of an error"),
        ("[[site]]\nroot = \"www\"\nerror-pages = { 404 = \"a\" }\n", ":3:23", "a path starts with `/`"),
        ("[[site]]\nroot = \"www\"\nerror-pages = { 404 = \"/none\" }\n", ":3:23", "does not exist"),
        ("[[site]]\nroot = \"www\"\nerror-pages = { 404 = \"file:none\" }\n", ":3:23", "does not exist"),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nrespond = 404\nerror-pages = false\n",
            ":6:15",
            "its site has none",
        ),
        (
            "[[site]]\nerror-pages = { 404 = \"/a\" }\n[[site.route]]\npath = \"/\"\nrespond = 200\n",
            ":2:23",
            "no files for its errors",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\ntry-files = [\"/{1}\"]\n",
            ":6:14",
            "there is no `{1}`",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nrespond = 200\ntry-files = [\"/a\"]\n",
            ":5:14",
            "`try-files` is about files",
        ),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nredirect = \"/{1}\"\n", ":4:12", "there is no `{1}`"),
        ("[[site]]\n[[site.route]]\npath-regex = \"a(b)\"\nredirect = \"/{2}\"\n", ":4:12", "there is no `{2}`"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nrewrite = \"https://a/\"\n", ":4:11", "is no path of this site"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nrewrite = \"/{x}\"\n", ":4:11", "there is no `{x}`"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nrespond = 99\n", ":4:11", "`99` is no status of an answer"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nrespond = 301\n", ":4:11", "use `redirect`"),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nrespond = 204\nrespond-body = \"a\"\n",
            ":5:16",
            "an answer of status 204 has no body",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nrespond = 200\nrequest-body = \"1KiB\"\n",
            ":4:11",
            "a request that is answered at once goes to no origin",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\ncgi = \"www\"\ntotal-timeout = \"1s\"\n",
            ":5:17",
            "write `cgi.timeout`",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nidle-timeout = \"1s\"\n",
            ":6:16",
            "is about an upstream",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nredirect = \"/a\"\nadmitted = true\n",
            ":5:12",
            "a redirect never waits for a slot",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nredirect = \"/a\"\nrequest-headers = { remove = [\"X\"] }\n",
            ":4:12",
            "a redirected request goes to no origin",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nkeep-host = true\n",
            ":6:13",
            "is about an upstream",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nadmitted = true\n",
            ":6:12",
            "files never wait for a slot",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nresource = \"site\"\n",
            ":6:12",
            "files never wait for a slot",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nearly-hints = true\n",
            ":6:15",
            "files never wait for a slot",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\ncache = true\n",
            ":6:9",
            "`cache` is about an upstream, and this route has none",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\ncache = \"on\"\n",
            ":6:9",
            "expected `true`, `false` or a table",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nmaintenance = false\n",
            ":6:15",
            "its site is never closed",
        ),
        ("[[site]]\n[[site.route]]\npath = \"/\"\ncgi = \"none\"\n", ":4:7", "does not exist"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\ncgi = \"tool\"\n", ":4:7", "may not be run"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\ncgi = { timeout = \"1s\" }\n", ":4:7", "this table has no `program`"),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\ncgi = { program = \"www\", interpretr = \"/bin/sh\" }\n",
            ":4:26",
            "did you mean `interpreter`?",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\ncgi = { program = \"www\", max-running = 0 }\n",
            ":4:40",
            "from 1 to",
        ),
        ("[[site]]\n[[site.route]]\npath = \"/\"\ncgi = 3\n", ":4:7", "a directory or program, or a table"),
        (
            "[[site]]\n[[site.route]]\npath = \"/a\"\ncgi = \"www\"\n[[site.route]]\npath = \"/a/\"\ncgi = \"www\"\n",
            ":6:8",
            "`/a` before it takes them all",
        ),
        (
            "[[site]]\n[[site.route]]\npath-glob = \"/*\"\ncgi = \"www\"\n[[site.route]]\npath-glob = \"/*\"\ncgi = \"www\"\n",
            ":6:13",
            "takes them all",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfastcgi = 3\n",
            ":5:11",
            "the address of an application",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nfastcgi = \"127.0.0.1:9000\"\n",
            ":4:11",
            "nothing says where the scripts are",
        ),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nfastcgi = { root = \"www\" }\n", ":4:11", "has no `address`"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nuwsgi = { timeout = \"1s\" }\n", ":4:9", "has no `address`"),
        ("[[site]]\n[[site.route]]\npath = \"/\"\nuwsgi = \"http://a:1\"\n", ":4:9", "no address of uwsgi"),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nuwsgi = { address = \"a:1\", modifier = 256 }\n",
            ":4:39",
            "not a number from 0 to 255",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nfastcgi = { address = \"[::1]:1\", root = \"none\" }\n",
            ":4:41",
            "does not exist",
        ),
        (
            "[[site]]\n[[site.route]]\npath = \"/\"\nfastcgi = { address = \"[::1]:1\", remote-root = \"www\" }\n",
            ":4:48",
            "begin with `/`",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfastcgi = { address = \"a:1\", extensions = [] }\n",
            ":5:11",
            "no file is a script",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfastcgi = { address = \"a:1\", extensions = \"*\" }\n",
            ":5:43",
            "not the extension of a script",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfastcgi = { address = \"a:1\", index = \"index.html\" }\n",
            ":5:38",
            "not the name of a script",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\ncgi = \"www\"\nfallback = \"/a\"\n",
            ":6:12",
            "about files that are missing",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nfallback = \"a\"\n",
            ":6:12",
            "no path of this site",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath = \"/\"\nfiles = true\nfallback = \"/a\"\ntry-files = \"/b\"\n",
            ":7:13",
            "no effect beside `fallback`",
        ),
        (
            "[[site]]\nroot = \"www\"\n[[site.route]]\npath-glob = \"/*.php\"\nfastcgi = \"a:1\"\n[[site.route]]\n\
             path = \"/\"\nfiles = true\ntry-files = [\"/index.php{query}\"]\n",
            ":9:14",
            "write `fallback = \"/index.php{query}\"`",
        ),
        (
            "[[site]]\nroot = \"www\"\nerror-pages = { 404 = \"/tool.php\" }\n[[site.route]]\npath = \"/\"\nfastcgi = \"a:1\"\n",
            ":3:23",
            "an error page is a file",
        ),
        ("[[site]]\nroot = \"www\"\nclient-ca = \"www\"\n", ":3:13", "over TLS only"),
    ] {
        let said = said_of(text);
        assert!(said.contains(part), "{text}\nsaid:\n{said}\nbut not: {part}");
        assert!(said.contains(&format!("--> serpent.toml{place}")), "{text}\nsaid:\n{said}\nbut not at {place}");
    }
    let said = said_of(
        "[[site]]\n[[site.route]]\npath = \"/a/\"\ncgi = \"www\"\n[[site.route]]\npath = \"/a\"\ncgi = \"www\"\n\
         [[site.route]]\npath = \"/ab\"\ncgi = \"www\"\n[[site.route]]\npath = \"/\"\ncgi = \"www\"\n",
    );
    assert_eq!(said, "", "none of these takes all that another matches");
}

#[test]
fn what_hardly_was_meant_is_told_and_served() {
    for (text, place, part) in [
        ("[[upstream]]\nname = \"b\"\nservers = [\"http://b\"]\n", ":9:8", "no route leads to the upstream `b`"),
        ("[[class]]\nname = \"a\"\n[[class]]\nname = \"b\"\n", ":9:8", "no request is of class `a`"),
        ("[[class]]\nname = \"a\"\ndeadline = \"1s\"\n", ":10:12", "`deadline` has no effect"),
        ("[[class]]\nname = \"a\"\nreserved = 2\n", ":10:12", "`reserved` has no effect"),
        ("[[class]]\nname = \"a\"\nweight = 2\n", ":10:10", "`weight` has no effect"),
        ("[[class]]\nname = \"a\"\ndelay-ratio = 2\n", ":10:15", "`delay-ratio` has no effect"),
        ("[admission]\nlate = \"refuse\"\n", ":9:8", "`late` has no effect"),
        ("[admission]\nshare = \"wtp\"\nslots = 2\ndelay-window = \"60s\"\n", ":11:16", "`delay-window` has no effect"),
        ("[admission]\nshare = \"ratio\"\nslots = 2\n", ":9:9", "`ratio` keeps delays in ratios"),
        ("[admission]\nshare = \"edf\"\nslots = 2\n", ":9:9", "`edf` goes by deadlines"),
        ("[admission]\nslots = 2\nwindows = \"knee\"\n", ":10:11", "there are no windows to adjust"),
        (
            "[admission]\nwindows = \"knee\"\nresources = { site = 2 }\nprobe-every = \"2s\"\n",
            ":11:15",
            "`probe-every` has no effect",
        ),
        ("[admission]\nresources = { site = { window = 2, upstream = \"app\" } }\n", ":9:47", "whom its `probe` asks"),
        ("[admission]\nresources = { site = { window = 2, host = \"app\" } }\n", ":9:43", "what its `probe` asks for"),
        ("[session]\nsecret = \"open\"\n", ":9:10", "is open to others than its owner (mode 644)"),
        ("[keys]\nfile = \"empty\"\n", ":9:8", "is open to everybody on this machine"),
    ] {
        let text = format!("{GATEWAY}{text}");
        let said = said_of(&text.replace("\"empty\"", "\"tool\""));
        assert!(said.contains(part), "{text}\nsaid:\n{said}\nbut not: {part}");
        assert!(said.contains(&format!("--> serpent.toml{place}")), "{text}\nsaid:\n{said}\nbut not at {place}");
        assert!(said.contains("warning: ") && !said.contains("error: "), "{said}");
    }
    let two = "[[class]]\nname = \"a\"\n[[class]]\nname = \"b\"\n[[rule]]\nclass = \"a\"\nhost = \"a\"\n";
    let said = said_of(&format!("{GATEWAY}{two}[admission]\nshare = \"weighted\"\n"));
    assert!(said.contains("nobody waits for the site") && said.contains("slots = 20"), "{said}");
    assert_eq!(said_of(&format!("{GATEWAY}{two}[admission]\nshare = \"weighted\"\nslots = 2\n")), "");
    assert_eq!(said_of(GATEWAY), "");
}

#[test]
fn a_value_that_cannot_be_read_is_the_only_mistake_that_comes_of_it() {
    let two = "[[class]]\nname = \"a\"\nreserved = 2\ndeadline = \"1s\"\n[[class]]\nname = \"b\"\nqueue = 5\n\
               [[rule]]\nclass = \"a\"\nhost = \"a\"\n";
    for share in ["strict", "weighted", "shared", "fixed", "edf", "ratio", "shard"] {
        for (slots, windows) in [("\"lots\"", ""), ("-1", "windows = \"knee\"\n"), ("0", "windows = \"gess\"\n")] {
            let said = said_of(&format!("{GATEWAY}{two}[admission]\nslots = {slots}\nshare = \"{share}\"\n{windows}"));
            let wrong = 1 + usize::from(share == "shard") + usize::from(windows.contains("gess"));
            assert_eq!(said.matches("error: ").count(), wrong, "{said}");
            assert!(!said.contains("warning: ") && said.contains("give a number from 1 to"), "{said}");
        }
    }
    for server in ["a:80", "localhost", "3000", "https://", "http//a", "http://a:99999", "ftp://a", "http://a/b"] {
        let text = GATEWAY.replace("\"http://127.0.0.1:3000\"", &format!("\"{server}\""));
        assert!(text.contains(server));
        for more in ["", "tls-verify = false\n", "active = { path = \"/\" }\n"] {
            let text = text.replace("servers = ", &format!("{more}servers = "));
            let said = said_of(&format!("{text}{two}[admission]\nslots = 4\nshare = \"edf\"\n"));
            assert!(said.starts_with("error: ") && said.matches("error: ").count() == 1, "{said}");
            assert!(said.contains(server) && !said.contains("warning: "), "{said}");
        }
    }
}

#[test]
fn what_stands_in_files_is_looked_at_as_at_the_start() {
    let said = said_of(&format!("{GATEWAY}[keys]\nfile = \"line\"\n"));
    assert!(said.contains("line 1: the hash is not SHA-256") && said.contains("--> serpent.toml:9:8"), "{said}");
}

#[test]
fn sections_that_could_not_be_read_are_not_missed() {
    // The upstream, its name gone with a mistake of shape, is not said to be unknown to the route.
    let said = said_of(
        "[[upstream]]\nname = []\nservers = [\"http://a\"]\n[[site]]\n[[site.route]]\npath = \"/\"\nupstream = \"app\"\n\
         [[rule]]\nclass = \"gold\"\n",
    );
    assert_eq!(said.matches("error: ").count(), 1, "{said}");
}

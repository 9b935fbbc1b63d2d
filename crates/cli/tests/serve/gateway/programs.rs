//! Programs that the server runs itself.

use super::*;

/// A gateway to these programs, all in the class plain, and where its metrics are.
fn with_programs(folder: &TempDir, programs: &[(&str, &str)], route: &str) -> (Serpent, SocketAddr) {
    let cgi = folder.path().join("cgi");
    fs::create_dir(&cgi).unwrap();
    for (name, script) in programs {
        program(&cgi.join(name), script);
    }
    let (file, cgi) = (folder.path().join("serpent.toml"), cgi.display());
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\nadmin = \"127.0.0.1:0\"\n[uplink]\nrate = \"off\"\n[[site]]\n\
         [[site.route]]\npath = \"/first\"\ncgi = \"{cgi}\"\n{route}\n[[site.route]]\npath = \"/cgi\"\ncgi = \"{cgi}\"\n{CLASSES}"
    );
    fs::write(&file, config).unwrap();
    start(&file)
}

#[test]
fn header_rules_end_where_a_program_redirects_and_answers_without_a_body_are_finished() {
    let folder = tempfile::tempdir().unwrap();
    let programs = [
        ("redirect.sh", "echo 'Location: /cgi/tell.sh'; echo"),
        ("tell.sh", "echo 'Content-Type: text/plain'; echo; echo \"it says <$HTTP_X_OWN> <$HTTP_X_SET>\""),
        ("empty.sh", "echo 'Status: 204 No Content'; echo"),
    ];
    let rules = "request-headers = { set = { X-Set = \"first\" }, remove = [\"X-Own\"] }";
    let (serpent, admin) = with_programs(&folder, &programs, rules);
    let ask = |method: &str, path: &str| {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: a\r\nx-own: mine\r\nconnection: close\r\n\r\n");
        serpent.exchange(request.as_bytes())
    };
    let answer = ask("GET", "/first/tell.sh");
    assert!(answer.contains("it says <> <first>"), "{answer}");
    let answer = ask("GET", "/first/redirect.sh");
    assert!(answer.contains("it says <mine> <>"), "{answer}");
    let answer = ask("HEAD", "/cgi/tell.sh");
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("it says"), "{answer}");
    let answer = ask("GET", "/cgi/empty.sh");
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    // The program behind the redirect is one more.
    wait_for_metric(admin, "serpent_class_finished_total{class=\"plain\"} 5");
    wait_for_metric(admin, "serpent_class_abandoned_total{class=\"plain\",state=\"running\"} 0");
}

#[test]
fn a_silent_program_ends_with_its_client() {
    for head in ["", "echo 'Content-Type: text/plain'; echo; "] {
        let folder = tempfile::tempdir().unwrap();
        let begun = folder.path().join("begun");
        let script =
            format!("{head}touch {}; while [ -d {} ]; do sleep 0.1; done", begun.display(), folder.path().display());
        let (serpent, admin) = with_programs(&folder, &[("silent.sh", &script)], "");
        let mut client = serpent.connect();
        client.write_all(b"GET /cgi/silent.sh HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        let start = std::time::Instant::now();
        while !begun.exists() {
            assert!(start.elapsed() < PATIENCE, "the program does not begin");
            std::thread::yield_now();
        }
        reset(client);
        wait_for_metric(admin, "serpent_class_abandoned_total{class=\"plain\",state=\"running\"} 1");
        wait_for_metric(admin, "serpent_class_running{class=\"plain\"} 0");
    }
}

#[test]
fn a_program_gets_a_body_for_which_there_is_no_room_as_it_comes() {
    let folder = tempfile::tempdir().unwrap();
    let seen = |name: &str| folder.path().join(name);
    let head = "echo 'Content-Type: text/css'; echo";
    let before = format!("{head}; cat > {}; echo", seen("before").display());
    let behind = format!("cat > {}; {head}", seen("behind").display());
    let programs = [("before.sh", &*before), ("behind.sh", &behind)];
    let (serpent, _) = with_programs(&folder, &programs, "[limits]\nbody-memory = \"0\"\nbody-file = \"0\"");
    // The connection's task waits for an answer, or for the body of one, of which nothing comes meanwhile.
    for name in ["before", "behind"] {
        let mut client = serpent.connect();
        let head = format!(
            "POST /cgi/{name}.sh HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        let mut sent = 0;
        in_chunks_as_they_are_seen(&mut client, &head, |_| {
            sent += 1;
            let start = std::time::Instant::now();
            while fs::metadata(seen(name)).map_or(0, |file| file.len()) < sent {
                assert!(start.elapsed() < PATIENCE, "{name}: the program has not got byte {sent}");
                std::thread::yield_now();
            }
        });
        let answer = all(client);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[test]
fn programs_answer_with_their_class() {
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("cgi");
    fs::create_dir(&programs).unwrap();
    program(
        &programs.join("who.sh"),
        "echo 'Content-Type: text/plain'\necho\necho \"$REQUEST_METHOD $SCRIPT_NAME $PATH_INFO $QUERY_STRING \
         $SERPENT_CLASS\"\ncat",
    );
    let file = folder.path().join("serpent.toml");
    let config = format!(
        "listen = [\"127.0.0.1:0\"]\n[uplink]\nrate = \"off\"\n[[site]]\n[[site.route]]\npath = \"/cgi/\"\ncgi = \"{}\"\n{CLASSES}",
        programs.display()
    );
    fs::write(&file, config.replace("path = \"/gold\"", "query = { level = \"gold\" }")).unwrap();
    let serpent = Serpent::start(&["serve", "--config", file.to_str().unwrap()]);
    let answer = serpent.exchange(
        b"POST /cgi/who.sh/more?level=gold HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbody",
    );
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("POST /cgi/who.sh /more level=gold gold"), "{answer}");
    assert!(answer.contains("body"), "{answer}");
    let answer = serpent.exchange(b"GET /cgi/none.sh HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}

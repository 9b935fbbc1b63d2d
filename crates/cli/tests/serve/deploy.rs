//! Tests of the files below `deploy`: the program that each is for reads it, and it names only metrics, addresses and
//! settings that Serpent has.

mod metrics;

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use yaml_rust2::{Yaml, YamlLoader};

use super::{
    gateway,
    support::{curl, serpent, tool},
};

/// The releases of Kubernetes whose schemas the manifests fit: the oldest that the guide names, and a recent one.
const KUBERNETES: [&str; 2] = ["1.30", "1.37"];

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn deploy(path: &str) -> PathBuf {
    repository("deploy").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(deploy(path)).unwrap_or_else(|error| panic!("deploy/{path}: {error}"))
}

fn yaml(text: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(text).unwrap()
}

fn list(yaml: &Yaml) -> &[Yaml] {
    yaml.as_vec().map_or(&[], Vec::as_slice)
}

/// Runs a program in `deploy`, which must find nothing wrong. Returns its output, or `None` if the program is missing.
fn accepted(program: &str, args: &[&str], input: &str) -> Option<String> {
    let mut command = tool(program)?;
    command.args(args).current_dir(deploy("")).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The program need not read it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}:\n{said}{}", String::from_utf8_lossy(&output.stderr));
    Some(said)
}

/// Checks that `serpent check` accepts a configuration without a warning.
fn assert_checked(name: &str, toml: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serpent.toml");
    fs::write(&file, toml).unwrap();
    let output = serpent(&["check", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{name}: {said}");
}

/// The documents of the plain manifest.
fn manifest() -> Vec<Yaml> {
    yaml(&read("kubernetes/base/serpent.yaml"))
}

fn of_kind<'a>(documents: &'a [Yaml], kind: &str) -> &'a Yaml {
    documents.iter().find(|it| it["kind"].as_str() == Some(kind)).unwrap_or_else(|| panic!("no {kind}"))
}

fn configuration(documents: &[Yaml]) -> &str {
    of_kind(documents, "ConfigMap")["data"]["serpent.toml"].as_str().unwrap()
}

#[test]
fn prometheus_reads_the_rules_and_each_alert_fires_where_it_should() {
    for args in [
        &["check", "rules", "prometheus/serpent.rules.yml"][..],
        &["test", "rules", "prometheus/serpent.test.yml"],
        &["check", "config", "prometheus/prometheus.yml", "prometheus/prometheus-kubernetes.yml"],
    ] {
        accepted("promtool", args, "");
    }
}

#[test]
fn each_alert_has_a_text_and_a_test_with_a_server_where_it_stays_silent() {
    let (rules, tests) = (yaml(&read("prometheus/serpent.rules.yml")), yaml(&read("prometheus/serpent.test.yml")));
    for rule in list(&rules[0]["groups"]).iter().flat_map(|group| list(&group["rules"])) {
        let Some(alert) = rule["alert"].as_str() else { continue };
        for part in ["summary", "description"] {
            assert!(rule["annotations"][part].as_str().is_some_and(|text| !text.is_empty()), "{alert} has no {part}");
        }
        let test = list(&tests[0]["tests"]).iter().find(|test| test["name"].as_str() == Some(alert));
        let test = test.unwrap_or_else(|| panic!("{alert} has no test"));
        let series = list(&test["input_series"]).iter().filter_map(|series| series["series"].as_str());
        let (bad, good): (Vec<_>, Vec<_>) = series.partition(|series| series.contains("instance=\"bad\""));
        assert_eq!(bad.len(), good.len(), "{alert}");
        let asked = list(&test["promql_expr_test"]);
        let firing = format!("count by (instance) (ALERTS{{alertname=\"{alert}\", alertstate=\"firing\"}})");
        assert!(asked.iter().all(|it| it["expr"].as_str() == Some(&firing)), "{alert}");
        let answers: Vec<_> = asked.iter().map(|it| list(&it["exp_samples"]).len()).collect();
        assert_eq!(answers, [0, 1], "{alert}: first silent, then firing on one server");
    }
}

#[test]
fn the_manifests_fit_the_schemas_of_kubernetes() {
    let overlay = accepted("kustomize", &["build", "kubernetes/overlays/shop"], "");
    let base = accepted("kustomize", &["build", "kubernetes/base"], "");
    if let Some(overlay) = &overlay {
        assert_eq!(configuration(&yaml(overlay)), read("kubernetes/overlays/shop/serpent.toml"));
    }
    for version in KUBERNETES {
        let schemas = repository("target/tools/kubernetes").join(version);
        if !schemas.is_dir() {
            assert!(std::env::var_os("CI").is_none(), "{} is missing: ./test makes it", schemas.display());
            eprintln!("SKIPPED: {} is missing; ./test makes it", schemas.display());
            continue;
        }
        let schemas = format!("{}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json", schemas.display());
        let plain = read("kubernetes/base/serpent.yaml");
        for manifest in [Some(&plain), base.as_ref(), overlay.as_ref()].into_iter().flatten() {
            accepted("kubeconform", &["-strict", "-schema-location", &schemas], manifest);
            assert!(yaml(manifest).len() >= yaml(&plain).len());
        }
    }
}

#[test]
fn the_configurations_are_accepted_without_a_warning() {
    assert_checked("the ConfigMap", configuration(&manifest()));
    assert_checked("the overlay", &read("kubernetes/overlays/shop/serpent.toml"));
    assert_checked("the compose file", &read("serpent.toml"));
    assert_checked("the compose file of several", &read("several.toml"));
}

#[test]
fn probes_ports_and_times_of_the_manifest_are_those_of_its_configuration() {
    let documents = manifest();
    let toml: toml::Table = configuration(&documents).parse().unwrap();
    let pod = &of_kind(&documents, "Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let port = |name: &str| {
        let ports = list(&container["ports"]).iter();
        ports.clone().find(|it| it["name"].as_str() == Some(name)).unwrap()["containerPort"].as_i64().unwrap()
    };
    assert_eq!(toml["listen"][0].as_str().unwrap(), format!(":{}", port("http")));
    assert_eq!(toml["admin"].as_str().unwrap(), format!("[::]:{}", port("admin")));

    let first_s = container["lifecycle"]["preStop"]["sleep"]["seconds"].as_i64().unwrap();
    let drain = toml["limits"]["shutdown-timeout"].as_str().unwrap();
    let drain_s: i64 = drain.strip_suffix('s').unwrap().parse().unwrap();
    assert!(first_s + drain_s < pod["terminationGracePeriodSeconds"].as_i64().unwrap());

    let own = container["securityContext"].clone();
    assert_eq!(own["readOnlyRootFilesystem"].as_bool(), Some(true));
    assert_eq!(own["allowPrivilegeEscalation"].as_bool(), Some(false));
    assert_eq!(own["capabilities"]["drop"][0].as_str(), Some("ALL"));
    assert_eq!(pod["securityContext"]["runAsNonRoot"].as_bool(), Some(true));
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"].as_str(), Some("RuntimeDefault"));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("serpent.toml");
    let text =
        configuration(&documents).replace("\":8080\"", "\"127.0.0.1:0\"").replace("\":9090\"", "\"127.0.0.1:0\"");
    fs::write(&file, text).unwrap();
    let (_serpent, admin) = gateway::start(&file);
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        let asked = &container[probe]["httpGet"];
        assert_eq!(asked["port"].as_str(), Some("admin"));
        let url = format!("http://{admin}{}", asked["path"].as_str().unwrap());
        if let Some(answer) = curl(&["--fail", &url]) {
            assert_eq!(answer, "ok\n");
        }
    }
}

#[test]
fn images_have_the_version_of_the_program() {
    let image = concat!("serpent:", env!("CARGO_PKG_VERSION"));
    let documents = manifest();
    let pod = &of_kind(&documents, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"].as_str(), Some(image));
    for file in ["compose.yaml", "compose-several.yaml"] {
        assert_eq!(yaml(&read(file))[0]["services"]["serpent"]["image"].as_str(), Some(image), "{file}");
    }
}

#[test]
fn compose_reads_its_file_and_what_is_mounted_is_there() {
    for (file, least) in [("compose.yaml", 4), ("compose-several.yaml", 1)] {
        accepted("compose-config", &[file], "");
        let compose = yaml(&read(file));
        let services = compose[0]["services"].as_hash().unwrap();
        let mounts = services.values().flat_map(|service| list(&service["volumes"])).filter_map(Yaml::as_str);
        let files: Vec<_> = mounts.filter_map(|mount| mount.strip_prefix("./")?.split(':').next()).collect();
        assert!(files.len() >= least, "{files:?}");
        for file in files {
            assert!(deploy(file).exists(), "deploy/{file}");
        }
    }
    for file in ["grafana/datasource.yaml", "grafana/provider.yaml"] {
        assert_eq!(yaml(&read(file))[0]["apiVersion"].as_i64(), Some(1), "{file}");
    }
}

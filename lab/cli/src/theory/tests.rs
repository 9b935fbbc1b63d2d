use clap::Parser as _;

use super::{question::SHARES, *};

fn run(args: &[&str]) -> Result<String, String> {
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: TheoryArgs,
    }
    let args = ["theory"].into_iter().chain(args.iter().copied());
    let cli = Cli::try_parse_from(args).map_err(|error| error.to_string())?;
    theory(&cli.args).map_err(|failure| failure.to_string())
}

fn json(args: &[&str]) -> Vec<serde_json::Value> {
    let text = run(&[args, &["--json"]].concat()).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_table_has_means_slowdowns_and_sizes() {
    // A mean of 1250 bytes takes 1 ms at 10 Mbit/s. At load 0.5 processor sharing doubles it, and so does
    // first come first served.
    let text = run(&["--sizes", "exponential:1250", "--load", "0.5", "--policies", "ps,fcfs"]).unwrap();
    let row = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned();
    let words: Vec<String> = row("ps").split_whitespace().map(str::to_owned).collect();
    assert_eq!(words[..4], ["ps", "2.00", "ms", "2.00"], "{text}");
    assert!(row("fcfs").contains("2.00 ms") && row("fcfs").contains("none"), "no mean slowdown exists: {text}");
    assert!(text.contains("99.9 %") && text.contains("1.25 kB"), "{text}");
}

#[test]
fn json_has_every_cell() {
    let cells =
        json(&["--sizes", "fixed:1250", "--sizes", "world-cup", "--load", "0.5,0.8", "--policies", "srpt,las,bands"]);
    assert_eq!(cells.len(), 12);
    let first = &cells[0];
    assert_eq!(
        (first["sizes"].as_str(), first["load"].as_f64(), first["policy"].as_str()),
        (Some("fixed:1250"), Some(0.5), Some("srpt"))
    );
    // M/D/1: 1 ms of service and half of that waiting.
    assert!((first["mean_s"].as_f64().unwrap() - 0.0015).abs() < 1e-12, "{first}");
    assert_eq!(cells[1]["policy"], "fb", "by the name that theory has for it");
    assert_eq!(first["by_size"].as_array().unwrap().len(), SHARES.len());
}

#[test]
fn check_puts_simulations_beside_and_says_how_far_off_the_worst_is() {
    let args = [
        "--check",
        "--sizes",
        "exponential:5000",
        "--load",
        "0.5",
        "--policies",
        "ps,srpt",
        "--seeds",
        "3",
        "--requests",
        "3000",
    ];
    let text = run(&args).unwrap();
    assert!(text.contains("Largest deviation:") && text.contains("of 2 closed forms lie in"), "{text}");
    for cell in json(&args) {
        let simulated = &cell["simulated"];
        assert_eq!(simulated["seeds"], 3);
        assert!(simulated["deviation"].as_f64().unwrap().abs() < 0.15, "{cell}");
    }
    assert_eq!(json(&args), json(&args), "whichever thread is ready first");
}

#[test]
fn an_overload_is_approximated_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("w.svg");
    let args = ["--sizes", "exponential:20000", "--overload", "5s@0.2,5s@1.2", "--svg", file.to_str().unwrap()];
    let text = run(&args).unwrap();
    assert!(text.contains("on average 0.700: an approximation"), "{text}");
    let svg = std::fs::read_to_string(file).unwrap();
    assert!(svg.contains("ps") && svg.contains("srpt") && svg.contains("Approximate mean response time"), "{svg}");
}

#[test]
fn a_wrong_question_says_what_is_wrong_with_it() {
    for (args, hints) in [
        (&["--load", "1.2"][..], &["1.2", "below 1"][..]),
        (&["--load", "0"], &["above 0"]),
        (&["--load", "much"], &["much"]),
        (&["--overload", "25s@0.9,25s@1.4"], &["1.15", "below 1 on average"]),
        (&["--overload", "w1", "--policies", "fb"], &["fb", "ps and srpt"]),
        (&["--sizes", "pareto:1"], &["pareto:1", "bounded-pareto:ALPHA,MIN,MAX"]),
        (&["--sizes", "bounded-pareto:1.1,500"], &["bounded-pareto:ALPHA,MIN,MAX"]),
        (&["--sizes", "bounded-pareto:1.1,500,x"], &["`x` is not a number"]),
        (&["--sizes", "bounded-pareto:1.1,500,400"], &["largest", "400"]),
        (&["--sizes", "exponential:-3"], &["mean", "-3"]),
        (&["--sizes", "world-cup:3"], &["world-cup"]),
        (&["--policies", "lifo"], &["lifo", "srpt"]),
        (&["--policies", "bands", "--cutoffs", "5,5"], &["--cutoffs", "larger"]),
        (&["--svg", "x.svg"], &["one law", "one load"]),
        (&["--seeds", "3"], &["--check"]),
        (&["--load", "0.5", "--overload", "w1"], &["cannot be used with"]),
    ] {
        let error = run(args).unwrap_err();
        for hint in hints {
            assert!(error.contains(hint), "{args:?}: `{hint}` is not in: {error}");
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let args = ["--sizes", "fixed:1000", "--load", "0.5", "--png", "/nowhere/at/all.png"];
    let error = run(&args).unwrap_err();
    assert!(error.contains("/nowhere/at/all.png"), "{error}");
}

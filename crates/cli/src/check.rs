//! `serpent check FILE`

use std::fmt::Write as _;

use server::config::{Config, Enforce, UplinkRate};

use crate::{
    args::{CheckArgs, ServeArgs},
    config::{self, Problems},
};

/// The summary of a file without mistakes.
pub fn check(args: &CheckArgs) -> Result<String, Problems> {
    let flags = ServeArgs { config: Some(args.file.clone()), ..ServeArgs::default() };
    config::load(&flags).map(|config| format!("{}: ok\n{}", args.file.display(), summary(&config)))
}

fn summary(config: &Config) -> String {
    let mut out = String::new();
    let mut line = |what: &str, text: String| {
        let _ = writeln!(out, "  {what:<8}{text}");
    };
    for listen in &config.listen {
        line("listen", format!("{}://{}", if listen.tls { "https" } else { "http" }, listen.address));
    }
    for site in &config.sites {
        let names = if site.names.is_empty() { "any name".to_owned() } else { site.names.join(", ") };
        line("site", format!("{names} from {}", site.root.display()));
    }
    let rate = match config.uplink.rate {
        UplinkRate::Auto => "rate found by itself".to_owned(),
        UplinkRate::Given(rate) => format!("{rate}"),
        UplinkRate::Off => "not paced".to_owned(),
    };
    let enforce = match config.uplink.enforce {
        Enforce::Server => "enforced by the server",
        Enforce::Kernel => "enforced by the kernel",
        Enforce::Off => "not enforced",
    };
    line("uplink", format!("{rate}, order {}, {enforce}", config.uplink.order));
    if let Some(admin) = config.admin {
        line("admin", format!("http://{admin}"));
    }
    out
}

//! The lines of `serpent serve` on a terminal, below the one with the addresses: the order, the reach of the server, the
//! next thing to try.

use std::{net::SocketAddr, path::Path, process};

use scheduler::Order;
use server::config::{Config, Enforce, Listen, UplinkRate};

use crate::{config::Overrides, values::Named as _};

/// The part that is known before the addresses are.
pub struct Greeting {
    order: String,
    next: String,
}

impl Greeting {
    pub fn new(config: &Config, args: &Overrides) -> Self {
        Self { order: order(config), next: next(config, args) }
    }

    /// Four lines; one more, if there is an admin address.
    pub fn lines(&self, addresses: &[Listen], admin: Option<SocketAddr>) -> String {
        let page = admin.map(|admin| format!("http://{admin}/ shows what it does"));
        let lines = [
            Some(("order", &*self.order)),
            Some(("reach", &reach(addresses))),
            page.as_deref().map(|page| ("page", page)),
            Some(("next", &self.next)),
            Some(("stop", "Ctrl-C, after the last response; a second Ctrl-C cuts it off")),
        ];
        lines.into_iter().flatten().map(|(name, text)| format!("  {name:<7}{text}\n")).collect()
    }
}

fn order(config: &Config) -> String {
    let uplink = &config.uplink;
    let help = Order::NAMED.iter().find(|(order, ..)| *order == uplink.order).map_or("", |(.., help)| help);
    let order = format!("{} ({})", help.split(':').next().unwrap_or_default().to_lowercase(), uplink.order);
    match (uplink.enforce, uplink.rate) {
        (Enforce::Kernel, _) => format!("{order}, by the kernel"),
        (Enforce::Off, _) | (_, UplinkRate::Off) => {
            "responses leave as they come; `--uplink auto` puts them in order".to_owned()
        }
        (_, UplinkRate::Given(rate)) => format!("{order}, over an uplink of {rate}"),
        (_, UplinkRate::Auto) => format!("{order}; the rate of the uplink is found by itself"),
    }
}

fn reach(addresses: &[Listen]) -> String {
    let Some(first) = addresses.first() else { return String::new() };
    let (scheme, port) = (if first.tls { "https" } else { "http" }, first.address.port());
    if addresses.iter().all(|listen| listen.address.ip().is_loopback()) {
        format!("from this machine alone; with `--listen :{port}` from others, too")
    } else if first.address.ip().is_unspecified() {
        format!("{scheme}://localhost:{port} from here, and by this machine's name from others")
    } else {
        "from all machines that reach these addresses".to_owned()
    }
}

/// The next thing to try: the most useful in this case.
fn next(config: &Config, args: &Overrides) -> String {
    if let Some(file) = &args.config {
        return format!("after a change: `serpent check {0}`, then `kill -HUP {1}`", file.display(), process::id());
    }
    if !config.upstreams.is_empty() {
        return match config.classes.admission.enabled {
            true => "a file puts requests into classes, and says which go first: `serpent serve --config FILE`",
            false => "`--slots 20` passes 20 requests on at a time, and has the others wait in order",
        }
        .to_owned();
    }
    let has_index =
        |root: &Path| config.sites.iter().any(|site| site.files.index.iter().any(|it| root.join(it).is_file()));
    let root = config.sites.first().and_then(|site| site.root.as_deref());
    if root.is_some_and(|root| !has_index(root)) && config.sites.iter().all(|site| !site.files.listing) {
        return "there is no index.html here, so `/` is not found: `--listing` lists the files".to_owned();
    }
    let useful = [
        (config.admin.is_none(), "`--admin 127.0.0.1:9090` shows on a page what it does"),
        (!matches!(config.uplink.rate, UplinkRate::Given(_)), "`--uplink 10mbit` names the rate of the line"),
        (true, "`--upstream http://127.0.0.1:3000` passes requests on"),
    ];
    let first_two: Vec<_> = useful.into_iter().filter(|(is_new, _)| *is_new).map(|(_, text)| text).take(2).collect();
    first_two.join("; ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{config, values};

    fn said(args: &Overrides) -> String {
        let config = config::load(args).unwrap_or_else(|problems| panic!("{problems}"));
        Greeting::new(&config, args).lines(&config.listen, config.admin)
    }

    #[test]
    fn four_lines_say_the_order_the_reach_and_what_is_useful_next() {
        let folder = tempfile::tempdir().unwrap();
        let dir = Some(folder.path().to_owned());
        let args = Overrides { dir, ..Overrides::default() };
        assert_eq!(
            said(&args),
            "  order  fewest bytes left first (srpt); the rate of the uplink is found by itself\n  \
             reach  from this machine alone; with `--listen :8080` from others, too\n  \
             next   there is no index.html here, so `/` is not found: `--listing` lists the files\n  \
             stop   Ctrl-C, after the last response; a second Ctrl-C cuts it off\n"
        );
        fs::write(folder.path().join("index.html"), "").unwrap();
        let listen = vec![values::listen(":80").unwrap()];
        let args = Overrides { listen, uplink: Some(UplinkRate::Given("10mbit".parse().unwrap())), ..args };
        let with_index = said(&args);
        assert!(with_index.contains("(srpt), over an uplink of 10mbit\n"), "{with_index}");
        assert!(with_index.contains("http://localhost:80 from here"), "{with_index}");
        assert!(!with_index.contains("`--uplink 10mbit`"), "it is given already: {with_index}");
        assert!(with_index.contains("next   `--admin 127.0.0.1:9090` shows on a page"), "{with_index}");
        let admin = Some(Some("127.0.0.1:9090".parse().unwrap()));
        let with_page = said(&Overrides { admin, ..args });
        assert!(with_page.contains("page   http://127.0.0.1:9090/ shows what it does\n"), "{with_page}");
        assert!(with_page.contains("next   `--upstream http://127.0.0.1:3000` passes"), "{with_page}");
        let upstream = vec![values::upstream_server("http://127.0.0.1:3000").unwrap()];
        let args = Overrides { upstream, uplink: Some(UplinkRate::Off), ..Overrides::default() };
        let gateway = said(&args);
        assert!(
            gateway.contains("order  responses leave as they come") && gateway.contains("next   `--slots 20`"),
            "{gateway}"
        );
    }
}

//! `[attach]`: the settings of `serpent attach`.

use attach::{AttachError, AttachOptions, Others, TrafficClass};
use server::config::Cutoffs;
use toml::Spanned;

use super::resolver::Resolver;
use crate::{
    config::{problems::Problem, raw::RawAttach},
    values::{self, Named as _},
};

/// Most cutoffs: there are 21 ranks of responses.
const MOST_CUTOFFS: usize = 20;

impl Resolver<'_> {
    /// The options, with an empty name if the device is named on the command line. `None` without a rate.
    pub(super) fn attach(&mut self, written: &Spanned<RawAttach>) -> Option<AttachOptions> {
        let section = written.get_ref();
        let rate = self.required(
            &section.rate,
            written.span(),
            (
                "`[attach]` has no `rate`",
                "give a rate a little below that of the narrowest link to the clients, as in `rate = \"97mbit\"`",
            ),
            values::rate,
        );
        let port = |text: &str| values::count(text, 65_535).map(|port| port as u16);
        let ports = section.ports.as_deref().map(|ports| self.read_each(ports, port));
        let classes =
            self.read_each(section.classes.as_deref().unwrap_or_default(), |text| text.parse::<TrafficClass>());
        let cutoffs = section.cutoffs.as_ref().map_or(Cutoffs::Learned, |cutoffs| self.cutoffs(cutoffs, MOST_CUTOFFS));
        let overhead = |text: &str| match values::size(text) {
            Ok(bytes @ 0..=1024) => Ok(bytes as u16),
            Ok(_) => Err("a packet takes at most 1024 bytes beyond its own".to_owned()),
            Err(message) => Err(message),
        };
        let options = AttachOptions {
            classes,
            cutoffs_bytes: match cutoffs {
                Cutoffs::Learned => Vec::new(),
                Cutoffs::Given(sizes) => {
                    if let Some(cutoffs) =
                        section.cutoffs.as_ref().filter(|_| sizes.iter().any(|&size| size >= 1 << 32))
                    {
                        self.problems.push(Problem::new("a cutoff is below 4 GiB", Some(cutoffs.span())));
                    }
                    sizes.iter().map(|&bytes| u32::try_from(bytes).unwrap_or(u32::MAX)).collect()
                }
            },
            others: self.setting(None, &section.others, Others::named, Others::First),
            overhead_bytes: self.setting(None, &section.overhead, overhead, 0),
            replace: section.replace.unwrap_or(false),
            server_user: self.optional(&section.server_user, |text| Ok(text.to_owned())),
            ..AttachOptions::new(
                self.optional(&section.device, |text| Ok(text.to_owned())).unwrap_or_default(),
                rate?.bits_per_second(),
                ports.unwrap_or_else(|| AttachOptions::PORTS.to_vec()),
            )
        };
        // Cutoffs were checked one by one.
        if let (Err(AttachError::Option { option, problem }), true) = (options.check(), self.is_as_written())
            && option != "cutoffs"
        {
            let first = |list: &Option<Vec<Spanned<_>>>| list.as_ref().and_then(|list| list.first().map(Spanned::span));
            let span = match option {
                "rate" => section.rate.as_ref().map(Spanned::span),
                "ports" => first(&section.ports),
                "class" => first(&section.classes),
                _ => None,
            };
            self.problems.push(Problem::new(problem, span.or(Some(written.span()))));
        }
        Some(options)
    }
}

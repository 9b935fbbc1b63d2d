//! The trace of a request: what the server before says of it, and what the next one is told (W3C Trace Context).

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
/// The flag of a trace that is sampled.
const SAMPLED: u8 = 1;
/// Longest `tracestate` that a span tells; the header itself is passed on at any length.
const MOST_STATE_BYTES: usize = 512;

/// The number of a trace. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(u128);

/// The number of a span. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(u64);

/// The trace of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The trace.
    pub trace: TraceId,
    /// The span of the request in this server.
    pub span: SpanId,
    /// The span of the request in the server before.
    pub parent: Option<SpanId>,
    /// A trace and a span that the client names, and that are not believed.
    pub claimed: Option<(TraceId, SpanId)>,
    /// The span of the origin, which the next server gets as its parent.
    pub origin: SpanId,
    /// Whether spans are told to the collector.
    pub is_sampled: bool,
}

/// A `traceparent` that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parent {
    trace: TraceId,
    span: SpanId,
    is_sampled: bool,
}

impl TraceId {
    fn random() -> Self {
        Self(fastrand::u128(1..))
    }

    /// The number.
    pub fn number(self) -> u128 {
        self.0
    }

    /// The bytes of the number, as the collector gets them.
    pub(crate) fn bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Whether a share of all traces has this one. All servers of a trace that use this rule and the same share agree.
    fn is_in(self, share: f64) -> bool {
        let place = (self.0 as u64) >> 1;
        share >= 1.0 || (place as f64) < share * (1_u64 << 63) as f64
    }
}

impl SpanId {
    /// A new one.
    pub fn random() -> Self {
        Self(fastrand::u64(1..))
    }

    /// The bytes of the number, as the collector gets them.
    pub(crate) fn bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Context {
    /// The trace of a request with these fields. With a believed parent, its trace goes on, and it has decided whether the
    /// trace is sampled. Otherwise a trace begins, which is sampled with this chance.
    pub(crate) fn begin(headers: &HeaderMap, is_believed: bool, share: f64) -> Self {
        let parent = Parent::of(headers);
        let (span, origin) = (SpanId::random(), SpanId::random());
        match parent.filter(|_| is_believed) {
            Some(Parent { trace, span: of_parent, is_sampled }) => {
                Self { trace, span, parent: Some(of_parent), claimed: None, origin, is_sampled }
            }
            None => {
                let trace = TraceId::random();
                let claimed = parent.map(|parent| (parent.trace, parent.span));
                Self { trace, span, parent: None, claimed, origin, is_sampled: trace.is_in(share) }
            }
        }
    }

    /// Has the fields of a request name the origin's span as the parent of the next server's. `tracestate` belongs to a
    /// trace, so it stays only where the trace goes on.
    pub fn pass_on(&self, headers: &mut HeaderMap) {
        headers.insert(TRACEPARENT, self.traceparent(self.origin));
        if self.parent.is_none() {
            headers.remove(TRACESTATE);
        }
    }

    /// The field for a server that is asked about the request, and not to answer it.
    pub fn traceparent_of_request(&self) -> (HeaderName, HeaderValue) {
        (TRACEPARENT, self.traceparent(self.span))
    }

    fn traceparent(&self, span: SpanId) -> HeaderValue {
        let flags = if self.is_sampled { SAMPLED } else { 0 };
        HeaderValue::try_from(format!("00-{}-{span}-{flags:02x}", self.trace)).expect("these are hexadecimal digits")
    }

    /// The `tracestate` that the servers before have sent, for the spans of the trace.
    pub fn state(&self, headers: &HeaderMap) -> Option<Box<str>> {
        self.parent?;
        let lines: Option<Vec<_>> = headers.get_all(TRACESTATE).iter().map(|line| line.to_str().ok()).collect();
        let state = lines?.join(",");
        (1..=MOST_STATE_BYTES).contains(&state.len()).then(|| state.into())
    }
}

impl Parent {
    /// The parent that the fields of a request name, if they name one.
    fn of(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(TRACEPARENT).iter();
        let (line, None) = (lines.next()?, lines.next()) else { return None };
        Self::parse(line.to_str().ok()?.trim_matches([' ', '\t']))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split('-');
        let mut hexadecimal = |digits: usize| {
            let field = fields.next()?;
            let is_sound = field.len() == digits && field.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            is_sound.then(|| u128::from_str_radix(field, 16).ok()).flatten()
        };
        let version = hexadecimal(2)?;
        let (trace, span, flags) = (hexadecimal(32)?, hexadecimal(16)?, hexadecimal(2)?);
        // A later version may have more fields.
        let is_whole = version < 0xff && (version > 0 || fields.next().is_none());
        let is_sound = is_whole && trace != 0 && span != 0;
        let is_sampled = flags & u128::from(SAMPLED) != 0;
        is_sound.then_some(Self { trace: TraceId(trace), span: SpanId(span as u64), is_sampled })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLED_PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(parents: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for parent in parents {
            headers.append(TRACEPARENT, HeaderValue::from_str(parent).unwrap());
        }
        headers.append(TRACESTATE, HeaderValue::from_static("congo=t61rcWkgMzE"));
        headers.append(TRACESTATE, HeaderValue::from_static("rojo=00f067aa0ba902b7"));
        headers
    }

    #[test]
    fn the_trace_of_a_believed_parent_goes_on_as_it_says() {
        for (flags, is_sampled) in [("00", false), ("01", true), ("02", false), ("03", true), ("ff", true)] {
            let text = format!("{}{flags}", &SAMPLED_PARENT[..53]);
            let mut fields = headers(&[&text]);
            // The share is for traces that begin here.
            let context = Context::begin(&fields, true, if is_sampled { 0.0 } else { 1.0 });
            assert_eq!(context.trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
            assert_eq!(context.parent.unwrap().to_string(), "00f067aa0ba902b7");
            assert_eq!((context.is_sampled, context.claimed), (is_sampled, None), "{flags}");
            assert_eq!(context.state(&fields).unwrap().as_ref(), "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7");
            context.pass_on(&mut fields);
            let flag = u8::from(is_sampled);
            let expected = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-{flag:02x}", context.origin);
            assert_eq!(fields[TRACEPARENT], expected);
            assert_eq!(fields.get_all(TRACESTATE).iter().count(), 2, "it stays as it is");
        }
    }

    #[test]
    fn a_client_that_is_not_believed_begins_a_trace_that_names_the_other() {
        let mut fields = headers(&[SAMPLED_PARENT]);
        let context = Context::begin(&fields, false, 0.0);
        assert!(!context.is_sampled && context.parent.is_none());
        assert_ne!(context.trace.to_string(), &SAMPLED_PARENT[3..35]);
        let (trace, span) = context.claimed.unwrap();
        assert_eq!(format!("00-{trace}-{span}-01"), SAMPLED_PARENT);
        assert_eq!(context.state(&fields), None);
        context.pass_on(&mut fields);
        assert_eq!(fields[TRACEPARENT], format!("00-{}-{}-00", context.trace, context.origin));
        assert!(!fields.contains_key(TRACESTATE), "it belongs to the other trace");
    }

    #[test]
    fn what_is_no_parent_begins_a_trace() {
        let upper = SAMPLED_PARENT.to_uppercase();
        let (longer, next) = (format!("{SAMPLED_PARENT}-"), format!("01{}-what", &SAMPLED_PARENT[2..]));
        for (parents, is_one) in [
            (&[SAMPLED_PARENT][..], true),
            (&[&*next], true),
            (&[&*longer], false),
            (&[], false),
            (&[SAMPLED_PARENT, SAMPLED_PARENT], false),
            (&[""], false),
            (&[&*upper], false),
            (&["ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"], false),
            (&["00-00000000000000000000000000000000-00f067aa0ba902b7-01"], false),
            (&["00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"], false),
            (&["00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01"], false),
            (&["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"], false),
            (&["00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"], false),
            (&["00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1"], false),
        ] {
            assert_eq!(Context::begin(&headers(parents), true, 1.0).parent.is_some(), is_one, "{parents:?}");
        }
    }

    #[test]
    fn a_share_of_new_traces_is_sampled() {
        for share in [0.0, 0.1, 0.5, 1.0] {
            let of = |_| Context::begin(&HeaderMap::new(), true, share).is_sampled;
            let sampled = (0..10_000).map(of).filter(|is_sampled| *is_sampled).count();
            let expected = share * 10_000.0;
            assert!((sampled as f64 - expected).abs() <= 400.0 * (share * (1.0 - share)).sqrt() * 2.0, "{sampled}");
        }
        let of_all = TraceId(u128::from(u64::MAX));
        assert!(of_all.is_in(1.0) && !of_all.is_in(0.999));
    }

    proptest! {
        #[test]
        fn what_is_passed_on_is_what_the_next_server_reads(trace in 1_u128.., share in 0.0..=1.0_f64, text in "[ -~]{0,80}") {
            let context = Context::begin(&HeaderMap::new(), true, share);
            let mut fields = HeaderMap::new();
            context.pass_on(&mut fields);
            let next = Context::begin(&fields, true, 1.0 - share);
            prop_assert_eq!((next.trace, next.parent, next.is_sampled), (context.trace, Some(context.origin), context.is_sampled));
            // Any text is read without a panic, and one that is taken is what was sent.
            if let Some(parent) = Parent::parse(&text) {
                prop_assert!(text.contains(&parent.trace.to_string()));
            }
            let sent = format!("00-{}-{}-01", TraceId(trace), SpanId(1));
            prop_assert_eq!(Parent::parse(&sent).map(|parent| parent.trace), Some(TraceId(trace)));
        }
    }
}

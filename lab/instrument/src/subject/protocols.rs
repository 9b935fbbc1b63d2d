//! The protocols that the clients of a setting use on the server's one port.

use workload::behaviour::{Behaviour, Protocol};

use crate::{LabError, setting::Setting};

/// The protocols of the clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protocols {
    /// All use TLS, or none.
    pub tls: bool,
    /// Some use HTTP/1.1.
    pub http1: bool,
    /// Some use HTTP/2.
    pub http2: bool,
}

impl Protocols {
    /// The protocols of all groups. Returns an error for groups with TLS beside groups without, which would
    /// need two ports.
    pub fn of(setting: &Setting) -> Result<Self, LabError> {
        let groups = setting.groups.iter().map(|group| group.clients.as_ref().unwrap_or(&setting.clients));
        let all: Vec<&Behaviour> = if setting.groups.is_empty() { vec![&setting.clients] } else { groups.collect() };
        let tls = all[0].tls;
        if all.iter().any(|behaviour| behaviour.tls != tls) {
            return Err(LabError::Request(
                "some groups of clients use TLS and others do not, but the server has one port: give all the same `tls`"
                    .to_owned(),
            ));
        }
        let any = |protocol| all.iter().any(|behaviour| behaviour.protocol == protocol);
        Ok(Self { tls, http1: any(Protocol::Http1), http2: any(Protocol::Http2) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setting::GroupSetting;

    #[test]
    fn groups_say_it_or_the_setting_does() {
        let mut setting = Setting::default();
        assert_eq!(Protocols::of(&setting).unwrap(), Protocols { tls: false, http1: true, http2: false });
        setting.clients.protocol = Protocol::Http2;
        let own = Some(Behaviour::default());
        setting.groups = vec![GroupSetting::default(), GroupSetting { clients: own, ..GroupSetting::default() }];
        assert_eq!(Protocols::of(&setting).unwrap(), Protocols { tls: false, http1: true, http2: true });
        setting.clients.tls = true;
        let refused = Protocols::of(&setting).unwrap_err();
        assert!(matches!(&refused, LabError::Request(reason) if reason.contains("one port")), "{refused}");
    }
}

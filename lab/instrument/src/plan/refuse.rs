//! Refuses the impossible before a run begins.

use std::path::Path;

use rustix::process::geteuid;
use socket2::{Domain, Socket, Type};

use super::{Plan, refused};
use crate::{LabError, docroot::check_room, sample::SystemCalls, subject::Subject};

/// Returns an error if this machine or user lacks something that the plans need.
pub fn check_machine(plans: &[Plan], subjects: &[Subject], serpent: &Path) -> Result<(), LabError> {
    if !geteuid().is_root() {
        return Err(LabError::Machine("network namespaces need root".to_owned()));
    }
    let mut seen: Vec<&str> = Vec::new();
    for plan in plans {
        let uploads = plan.bed.uploads.iter().map(|upload| ("link.uploads", upload.congestion.as_str()));
        for (key, name) in uploads.chain([("link.congestion", plan.bed.congestion.as_str())]) {
            if !seen.contains(&name) {
                check_congestion(key, name)?;
                seen.push(name);
            }
        }
    }
    check_room(plans.iter().map(|plan| plan.bytes_to_serve).max().unwrap_or(0))?;
    if plans.iter().any(|plan| plan.setting.count.system_calls) {
        SystemCalls::check().map_err(|reason| {
            LabError::Machine(format!("`count.system-calls` is true, and {reason}; without it nothing is counted"))
        })?;
    }
    for subject in subjects {
        subject.is_installed(serpent)?;
    }
    Ok(())
}

/// Asks the kernel, which loads a missing module.
fn check_congestion(key: &str, name: &str) -> Result<(), LabError> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).map_err(LabError::io("cannot make a socket"))?;
    socket.set_tcp_congestion(name.as_bytes()).map_err(|_| {
        let available = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        refused(format!(
            "`{key}`: this kernel has no congestion control `{name}`; it has: {}",
            available.unwrap_or_default().trim()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congestion_control_that_the_kernel_lacks_is_told_with_those_it_has() {
        check_congestion("link.congestion", "reno").unwrap();
        let error = check_congestion("link.uploads", "telepathy").unwrap_err().to_string();
        assert!(error.contains("`link.uploads`") && error.contains("`telepathy`") && error.contains("reno"), "{error}");
    }
}

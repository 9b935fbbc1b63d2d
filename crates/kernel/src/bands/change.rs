//! Installs and removes bands.

use std::fmt;

use serde::Serialize;

use super::{
    error::BandsError,
    installed::{How, InstallOptions, Installed, Qdisc, Shape},
    link,
    memory::Memory,
    observe::{self, Device, Root},
    plan, tool, units,
};

/// The state of a device after [`remove`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// The network device.
    pub device: String,
    /// The device's root now, as `tc` prints it: the kernel's default.
    pub root: String,
    /// Most segments in one packet now.
    pub gso_max_segs: u32,
    /// The root that `replace` removed when the bands were installed. It is not restored, because its
    /// settings are unknown.
    pub replaced: Option<String>,
}

/// Installs bands on a device, or changes the rate of existing ones without dropping a packet.
///
/// Where this process may make a network namespace, the commands are first tried there. If a step still fails
/// on the device, all earlier steps are undone. The device then has its old packet size and the kernel's
/// default discipline, also in place of a replaced one. The earlier state is saved in `/run/serpent` for
/// [`remove`].
pub fn install(options: &InstallOptions) -> Result<Installed, BandsError> {
    plan::check(options)?;
    let device = observe::device(&options.device)?;
    let root = observe::root(&observe::qdiscs(Some(&options.device))?);
    if let Root::Foreign(found) = &root
        && !options.replace
    {
        return Err(BandsError::ForeignQdisc { device: options.device.clone(), found: found.clone() });
    }
    must_be_permitted(&options.device)?;

    let memory = note(options, &device, &root);
    let installed = |shape, how| Installed {
        device: options.device.clone(),
        shape,
        bands: options.bands,
        rate_bits_per_second: options.rate_bits_per_second,
        gso_max_segs: memory.gso_max_segs_set,
        how,
    };
    if let Root::Ours { shape, bands, .. } = root
        && bands == Some(options.bands)
        && (options.qdisc == Qdisc::Auto || options.qdisc == wanted(shape))
    {
        memory.save(&options.device)?;
        tool::batch(&plan::update(shape, options, &options.device, device.mtu_bytes))?;
        set_gso_max_segs(&options.device, device.gso_max_segs, memory.gso_max_segs_set)?;
        return Ok(installed(shape, How::Updated));
    }

    let shape = choose(options, &device)?;
    memory.save(&options.device)?;
    let result = install_new(shape, options, &device, &root, &memory);
    if result.is_err() {
        Memory::forget(&options.device);
    }
    result.map(|()| installed(shape, How::New))
}

/// Removes our bands from a device, and restores the kernel's default discipline and the device's packet
/// size.
pub fn remove(device: &str) -> Result<Removed, BandsError> {
    let before = observe::device(device)?;
    let memory = Memory::load(device, before.ifindex);
    let root = observe::root(&observe::qdiscs(Some(device))?);
    let ours = matches!(root, Root::Ours { .. });
    // The bands are gone, removed by hand or by a crash in this function, but the packet size is still the
    // one set here.
    let gso_is_ours = memory.as_ref().is_some_and(|memory| memory.gso_max_segs_set == before.gso_max_segs);
    if !ours && !gso_is_ours {
        Memory::forget(device);
        return Err(BandsError::NotInstalled { device: device.into(), found: root.words().into() });
    }
    must_be_permitted(device)?;
    if ours {
        delete_root(device)?;
    }
    let gso_max_segs = memory.as_ref().map_or(before.gso_max_segs_default, |memory| memory.gso_max_segs_before);
    set_gso_max_segs(device, before.gso_max_segs, gso_max_segs)?;
    Memory::forget(device);
    Ok(Removed {
        device: device.into(),
        root: observe::root(&observe::qdiscs(Some(device))?).words().into(),
        gso_max_segs,
        replaced: memory.and_then(|memory| memory.replaced),
    })
}

impl fmt::Display for Removed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: bands removed; the kernel's default ({}) is back, packets of at most {}",
            self.device,
            self.root,
            units::segments(self.gso_max_segs)
        )?;
        if let Some(replaced) = &self.replaced {
            write!(f, "; {replaced}, which was there before the bands, was not put back")?;
        }
        Ok(())
    }
}

fn wanted(shape: Shape) -> Qdisc {
    match shape {
        Shape::Htb => Qdisc::Htb,
        Shape::Prio => Qdisc::Prio,
    }
}

/// The earlier state of the device, as far as it is known.
fn note(options: &InstallOptions, device: &Device, root: &Root) -> Memory {
    let earlier = Memory::load(&options.device, device.ifindex)
        .filter(|memory| matches!(root, Root::Ours { .. }) || memory.gso_max_segs_set == device.gso_max_segs);
    let gso_max_segs_before = match (&earlier, root) {
        (Some(memory), _) => memory.gso_max_segs_before,
        (None, Root::Ours { .. }) => device.gso_max_segs_default,
        (None, _) => device.gso_max_segs,
    };
    let replaced = match root {
        Root::Foreign(words) => Some(words.clone()),
        _ => earlier.and_then(|memory| memory.replaced),
    };
    Memory {
        ifindex: device.ifindex,
        gso_max_segs_before,
        gso_max_segs_set: link::gso_max_segs(options.rate_bits_per_second, gso_max_segs_before),
        replaced,
    }
}

/// The first shape that this kernel accepts, found by a trial in a namespace. Where no namespace can be made,
/// the first choice is returned, and installing it shows whether it works.
fn choose(options: &InstallOptions, device: &Device) -> Result<Shape, BandsError> {
    let candidates: &[Shape] = match options.qdisc {
        Qdisc::Auto => &[Shape::Htb, Shape::Prio],
        Qdisc::Htb => &[Shape::Htb],
        Qdisc::Prio => &[Shape::Prio],
    };
    let mut first_refusal = None;
    for &shape in candidates {
        match tool::rehearse(&plan::install(shape, options, "lo", device.mtu_bytes)) {
            Some(Err(refusal)) => first_refusal = first_refusal.or(Some(refusal)),
            Some(Ok(())) | None => return Ok(shape),
        }
    }
    Err(first_refusal.unwrap_or(BandsError::UnsupportedSystem))
}

/// Installs on a device without bands, or with bands of another shape. Undoes all steps when one fails.
fn install_new(
    shape: Shape,
    options: &InstallOptions,
    device: &Device,
    root: &Root,
    memory: &Memory,
) -> Result<(), BandsError> {
    let name = &options.device;
    if !matches!(root, Root::Default(_)) {
        delete_root(name)?;
    }
    let steps = || {
        tool::batch(&plan::install(shape, options, name, device.mtu_bytes))?;
        set_gso_max_segs(name, device.gso_max_segs, memory.gso_max_segs_set)
    };
    steps().map_err(|first| match undo(name, memory.gso_max_segs_before) {
        Ok(()) => first,
        Err(then) => BandsError::RollBack { first: Box::new(first), then: Box::new(then), device: name.clone() },
    })
}

fn undo(device: &str, gso_max_segs_before: u32) -> Result<(), BandsError> {
    if matches!(observe::root(&observe::qdiscs(Some(device))?), Root::Ours { .. }) {
        delete_root(device)?;
    }
    set_gso_max_segs(device, observe::device(device)?.gso_max_segs, gso_max_segs_before)
}

fn delete_root(device: &str) -> Result<(), BandsError> {
    tool::run("tc", &["qdisc", "del", "dev", device, "root"]).map(drop)
}

fn set_gso_max_segs(device: &str, now: u32, wanted: u32) -> Result<(), BandsError> {
    if now == wanted {
        return Ok(());
    }
    tool::run("ip", &["link", "set", "dev", device, "gso_max_segs", &wanted.to_string()]).map(drop)
}

/// Refuses early with a clear message. Refusals by a namespace or a security module come from the tools
/// later.
fn must_be_permitted(device: &str) -> Result<(), BandsError> {
    #[cfg(target_os = "linux")]
    {
        let held = rustix::thread::capabilities(None).map(|sets| sets.effective);
        if held.is_ok_and(|held| !held.contains(rustix::thread::CapabilitySet::NET_ADMIN)) {
            return Err(BandsError::NotPermitted { what: format!("change the traffic control of {device}") });
        }
    }
    let _ = device;
    Ok(())
}

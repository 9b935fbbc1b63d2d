//! Attaches a device, and detaches it.

use std::{fmt, io};

use aya::maps::Map;
use kernel::bands::link::gso_max_segs;

use crate::{
    earlier::{Earlier, Queue},
    error::AttachError,
    maps::{LAST_RANK, SUBRANKS, Settings},
    netlink::{Device, Found, Netlink, Request, program_id},
    options::AttachOptions,
    pins,
    plan::{MAJOR, QUEUE_PACKETS, ROOT, Shape, Step, Subject, delete_root, filter},
    program::{Loaded, Running},
};

/// An attached device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// The device.
    pub device: String,
    /// How it was attached.
    pub how: How,
    /// Ranks of responses.
    pub ranks: u32,
    /// The discipline that was there before and comes back at `detach`; `None` if it was the kernel's default.
    pub replaced: Option<String>,
}

/// How a device was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Queues and classifier were made.
    New,
    /// The device was attached; rate and settings were changed in place, and no packet was dropped.
    Updated,
    /// The device had Serpent's bands in another form. They were made anew, and the packets that waited were dropped.
    MadeAnew,
}

/// A device that is no longer attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    /// The device.
    pub device: String,
    /// The discipline that was put back; `None` if it is the kernel's default.
    pub put_back: Option<String>,
}

/// The root of a device.
pub(crate) enum Root {
    /// The kernel's own.
    Default,
    /// Serpent's, with the number of the classifier, if there is one.
    Ours(Option<u32>),
    /// That of another program or person.
    Foreign(Found),
}

/// Attaches a device. Attaching it again changes its settings.
///
/// All changes are made by one call into the kernel, which is carried out even if this process is killed.
pub fn attach(options: &AttachOptions) -> Result<Attached, AttachError> {
    options.check()?;
    let netlink = Netlink::open()?;
    let device = device(&netlink, &options.device)?;
    let root = root(&netlink, &device)?;
    let shape = shape(options, &device);
    let settings = options.settings()?;
    let server_user_id = options.server_user_id()?;
    if let (Root::Foreign(found), false) = (&root, options.replace) {
        return Err(AttachError::Foreign { device: options.device.clone(), found: words(found) });
    }
    if let (Root::Ours(None), false) = (&root, options.replace) {
        return Err(AttachError::Bands { device: options.device.clone() });
    }
    let mut program = Loaded::new(&settings)?;
    let running = match &root {
        Root::Ours(Some(id)) => Some(Running::find(*id)?),
        _ => None,
    };
    // Those of earlier versions are made anew: their bands may have one rank each, and their queues are short.
    let subranks = running.as_ref().map(|running| running.settings()).transpose()?.map(|old| old.subranks);
    if subranks == Some(SUBRANKS) && device.queue_packets >= QUEUE_PACKETS {
        update(&netlink, options, &device, &shape, &settings, &mut program, running)?;
        let replaced = Earlier::load(&options.device, device.index).and_then(|earlier| earlier.replaced());
        return Ok(Attached { device: options.device.clone(), how: How::Updated, ranks: LAST_RANK, replaced });
    }
    let steps = shape.install(program.descriptor()?, !matches!(root, Root::Default));
    rehearse(&steps)?;
    let mut earlier = match (&root, Earlier::load(&options.device, device.index)) {
        (Root::Ours(_), Some(earlier)) => earlier,
        // The packet size of those is Serpent's.
        (Root::Ours(_), None) => Earlier::default_of(&device),
        (Root::Default, _) => Earlier::of(&device, Vec::new()),
        (Root::Foreign(_), _) => Earlier::of(&device, foreign_queues(&netlink, options, &device)?),
    };
    earlier.queue_packets.get_or_insert(device.queue_packets);
    earlier.save(&options.device)?;
    pin(program.told()?, &device, server_user_id)?;
    let mut requests = Vec::new();
    if device.queue_packets < QUEUE_PACKETS {
        requests.push(Request::QueuePackets(QUEUE_PACKETS));
    }
    requests.extend(over(&root, steps));
    requests.push(Request::Segments(gso_max_segs(options.rate_bits_per_second, earlier.gso_max_segs)));
    if let Err(error) = carry_out(&netlink, &device, &requests) {
        // The kernel has tried all of them; what it has made is taken away again.
        carry_out(&netlink, &device, &restoration(&earlier)).ok();
        Earlier::forget(&options.device);
        pins::unpin(device.index);
        return Err(error);
    }
    let how = if matches!(root, Root::Ours(_)) { How::MadeAnew } else { How::New };
    Ok(Attached { device: options.device.clone(), how, ranks: LAST_RANK, replaced: earlier.replaced() })
}

/// Detaches a device: what was there before comes back.
pub fn detach(name: &str) -> Result<Detached, AttachError> {
    let netlink = Netlink::open()?;
    let device = device(&netlink, name)?;
    match root(&netlink, &device)? {
        Root::Ours(Some(_)) => {}
        Root::Ours(None) => {
            let found = format!("Serpent's bands without a classifier (`tc qdisc del dev {name} root` removes them)");
            return Err(AttachError::NotAttached { device: name.into(), found });
        }
        Root::Default => {
            return Err(AttachError::NotAttached { device: name.into(), found: "the kernel's default".into() });
        }
        Root::Foreign(found) => {
            return Err(AttachError::NotAttached { device: name.into(), found: words(&found) });
        }
    }
    // Without its file the kernel's defaults come back.
    let earlier = Earlier::load(name, device.index).unwrap_or_else(|| Earlier::default_of(&device));
    carry_out(&netlink, &device, &restoration(&earlier))?;
    Earlier::forget(name);
    pins::unpin(device.index);
    Ok(Detached { device: name.into(), put_back: earlier.replaced() })
}

/// The changes that [`attach`] would make, as commands of `tc` and `ip`. Nothing is changed, and no privilege is needed.
pub fn commands(options: &AttachOptions) -> Result<Vec<String>, AttachError> {
    options.check()?;
    let netlink = Netlink::open()?;
    let device = device(&netlink, &options.device)?;
    let shape = shape(options, &device);
    let name = &options.device;
    let with_device = |step: Step| {
        let words = step.to_string();
        let (verb, rest) = words.split_at(words.match_indices(' ').nth(1).map_or(words.len(), |(at, _)| at));
        format!("tc {verb} dev {name}{rest}")
    };
    let mut commands = Vec::new();
    let mut replaces = false;
    match root(&netlink, &device)? {
        Root::Default => {}
        Root::Ours(_) => {
            commands.push(format!("# {name} has Serpent's bands: rate and settings would be changed in place"))
        }
        Root::Foreign(found) if options.replace => {
            commands.push(format!("# {} is kept, and comes back at detach", words(&found)));
            replaces = true;
        }
        Root::Foreign(found) => return Err(AttachError::Foreign { device: name.clone(), found: words(&found) }),
    }
    if device.queue_packets < QUEUE_PACKETS {
        commands.push(format!("ip link set dev {name} txqueuelen {QUEUE_PACKETS}"));
    }
    let mut made = shape.install(0, replaces).into_iter().map(with_device);
    if let Some(root) = made.next() {
        commands.push(if replaces { root.replacen(" add ", " replace ", 1) } else { root });
    }
    commands.extend(made);
    let segments = gso_max_segs(options.rate_bits_per_second, device.gso_max_segs);
    if segments != device.gso_max_segs {
        commands.push(format!("ip link set dev {name} gso_max_segs {segments}"));
    }
    Ok(commands)
}

/// Changes an attached device in place.
fn update(
    netlink: &Netlink,
    options: &AttachOptions,
    device: &Device,
    shape: &Shape,
    settings: &Settings,
    program: &mut Loaded,
    running: Option<Running>,
) -> Result<(), AttachError> {
    let server_user_id = options.server_user_id()?;
    let steps = shape.install(0, false);
    let classes = steps.into_iter().filter(|step| step.subject == Subject::Class);
    let mut requests: Vec<Request> = classes.map(Request::Replace).collect();
    match running {
        Some(running) if running.tag() == program.tag()? => {
            running.set_settings(settings)?;
            // Without the option an earlier file stays, because it is of this map.
            if server_user_id.is_some() {
                pin(&running.told()?, device, server_user_id)?;
            }
        }
        _ => {
            pin(program.told()?, device, server_user_id)?;
            requests.push(Request::Replace(filter(program.descriptor()?)));
        }
    }
    let before = Earlier::load(&options.device, device.index)
        .map_or(device.gso_max_segs_default, |earlier| earlier.gso_max_segs);
    requests.push(Request::Segments(gso_max_segs(options.rate_bits_per_second, before)));
    carry_out(netlink, device, &requests)
}

/// Hands the map to the user of a server, or takes away the file of an earlier map.
fn pin(told: &Map, device: &Device, server_user_id: Option<u32>) -> Result<(), AttachError> {
    match server_user_id {
        Some(user_id) => pins::pin(told, device.index, user_id),
        None => {
            pins::unpin(device.index);
            Ok(())
        }
    }
}

/// The requests that make queues, the root first, in place of a root. A root of another program goes in the step that makes
/// the new one: between its deletion and that, the kernel's default would send without a rate.
fn over(root: &Root, steps: Vec<Step>) -> Vec<Request> {
    let mut requests = Vec::with_capacity(steps.len() + 2);
    let mut steps = steps.into_iter();
    match root {
        Root::Default => {}
        // It has the same handle as the new one.
        Root::Ours(_) => requests.push(Request::Traffic(delete_root())),
        Root::Foreign(_) => requests.extend(steps.next().map(Request::Replace)),
    }
    requests.extend(steps.map(Request::Traffic));
    requests
}

/// The requests that put back the earlier state.
fn restoration(earlier: &Earlier) -> Vec<Request> {
    let mut queues = earlier.queues.iter().map(Queue::step);
    let root = queues.next().map_or_else(|| Request::Traffic(delete_root()), Request::Replace);
    // First, so that what is put back has queues of the earlier length.
    let mut requests: Vec<Request> = earlier.queue_packets.map(Request::QueuePackets).into_iter().collect();
    requests.push(root);
    requests.extend(queues.map(Request::Traffic));
    requests.push(Request::Segments(earlier.gso_max_segs));
    requests
}

impl Earlier {
    /// The present state of a device, with these queues.
    fn of(device: &Device, queues: Vec<Queue>) -> Self {
        let (device_index, gso_max_segs) = (device.index, device.gso_max_segs);
        Self { device_index, gso_max_segs, queue_packets: Some(device.queue_packets), queues }
    }

    /// The kernel's default.
    fn default_of(device: &Device) -> Self {
        /// `DEFAULT_TX_QUEUE_LEN`, that of nearly all devices.
        const DEFAULT_QUEUE_PACKETS: u32 = 1000;
        let (device_index, gso_max_segs) = (device.index, device.gso_max_segs_default);
        let is_ours = device.queue_packets == QUEUE_PACKETS;
        let queue_packets = Some(if is_ours { DEFAULT_QUEUE_PACKETS } else { device.queue_packets });
        Self { device_index, gso_max_segs, queue_packets, queues: Vec::new() }
    }

    /// The discipline that comes back at `detach`, in words.
    fn replaced(&self) -> Option<String> {
        self.queues.first().map(Queue::words)
    }
}

/// The disciplines and classes of a foreign tree, parents first.
fn foreign_queues(netlink: &Netlink, options: &AttachOptions, device: &Device) -> Result<Vec<Queue>, AttachError> {
    let qdiscs: Vec<Found> = netlink
        .found(device.index, Subject::Qdisc, 0)?
        .into_iter()
        // The hooks of `clsact` and `ingress` are not part of the root, and stay.
        .filter(|found| found.parent != 0xffff_fff1 && found.kind != "clsact" && found.kind != "ingress")
        .collect();
    for qdisc in &qdiscs {
        if !netlink.found(device.index, Subject::Filter, qdisc.handle)?.is_empty() {
            let found = qdiscs.iter().find(|found| found.parent == ROOT).map_or_else(String::new, words);
            return Err(AttachError::NotRestorable { device: options.device.clone(), found });
        }
    }
    let classes = netlink.found(device.index, Subject::Class, 0)?;
    let mut queues: Vec<Queue> = Vec::new();
    let mut parents = vec![ROOT];
    while let Some(parent) = parents.pop() {
        for found in qdiscs.iter().filter(|found| found.parent == parent && found.handle != 0) {
            queues.push(Queue::new(false, found.clone()));
            // The classes of a discipline, whose parent is itself, or one of its classes.
            let mut inner = vec![ROOT, found.handle];
            while let Some(inner_parent) = inner.pop() {
                let major = found.handle >> 16;
                for class in classes.iter().filter(|class| class.handle >> 16 == major && class.parent == inner_parent)
                {
                    // Classless disciplines that show their queues as classes make them by themselves.
                    if ["htb", "hfsc", "drr", "qfq"].contains(&class.kind.as_str()) {
                        queues.push(Queue::new(true, class.clone()));
                    }
                    inner.push(class.handle);
                    parents.push(class.handle);
                }
            }
            parents.push(found.handle);
        }
    }
    Ok(queues)
}

/// Tries the steps on the loopback device of a network namespace made for it. So what the kernel lacks is known before
/// anything is changed.
fn rehearse(steps: &[Step]) -> Result<(), AttachError> {
    let tried = kernel::netns::in_temporary(|| {
        let netlink = Netlink::open()?;
        let device = netlink.device("lo")?;
        let requests: Vec<Request> = steps.iter().cloned().map(Request::Traffic).collect();
        carry_out(&netlink, &device, &requests)
    });
    // Where no namespace can be made, the attempt itself shows it.
    tried.unwrap_or(Ok(())).map_err(|error| match error {
        AttachError::Refused { step, source } if source.kind() == io::ErrorKind::NotFound => AttachError::Kernel {
            lacks: format!(
                "it refused `{step}`, for which it needs CONFIG_NET_SCH_HTB and CONFIG_NET_CLS_BPF (modules sch_htb and cls_bpf)"
            ),
        },
        error => error,
    })
}

fn carry_out(netlink: &Netlink, device: &Device, requests: &[Request]) -> Result<(), AttachError> {
    netlink.carry_out(device.index, requests)?.map_err(|(number, source)| {
        let step = match requests.get(number) {
            Some(Request::Traffic(step) | Request::Replace(step)) => format!("tc {step}"),
            Some(Request::Segments(segments)) => format!("ip link set gso_max_segs {segments}"),
            Some(Request::QueuePackets(packets)) => format!("ip link set txqueuelen {packets}"),
            None => String::new(),
        };
        match source.kind() {
            io::ErrorKind::PermissionDenied => AttachError::NotPermitted { what: format!("do `{step}`") },
            _ => AttachError::Refused { step, source },
        }
    })
}

pub(crate) fn device(netlink: &Netlink, name: &str) -> Result<Device, AttachError> {
    let no_device = || AttachError::NoDevice { device: name.to_owned() };
    if name.is_empty() || name.len() > 15 || name.contains(['/', '\0']) {
        return Err(no_device());
    }
    netlink.device(name).map_err(|error| match error.raw_os_error() {
        // ENODEV
        Some(19) => no_device(),
        _ => error.into(),
    })
}

/// The root of a device, and whose it is.
pub(crate) fn root(netlink: &Netlink, device: &Device) -> io::Result<Root> {
    let found = netlink.found(device.index, Subject::Qdisc, 0)?;
    let Some(root) = found.into_iter().find(|found| found.parent == ROOT) else { return Ok(Root::Default) };
    if root.handle == 0 {
        return Ok(Root::Default);
    }
    if (root.kind == "htb" && root.handle == MAJOR << 16) || (root.kind == "tbf" && root.handle == 0x5e70 << 16) {
        let filters = netlink.found(device.index, Subject::Filter, MAJOR << 16).unwrap_or_default();
        return Ok(Root::Ours(filters.iter().find_map(|filter| program_id(&filter.options))));
    }
    Ok(Root::Foreign(root))
}

fn shape(options: &AttachOptions, device: &Device) -> Shape {
    Shape {
        rate_bits_per_second: options.rate_bits_per_second,
        overhead_bytes: options.overhead_bytes,
        mtu_bytes: device.mtu_bytes,
    }
}

fn words(found: &Found) -> String {
    format!("{} {:x}:", found.kind, found.handle >> 16)
}

impl fmt::Display for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.how {
            How::New => "attached",
            How::Updated => "was attached; rate and settings were changed in place",
            How::MadeAnew => "attached in place of Serpent's bands; the packets that waited in them were dropped",
        };
        write!(f, "{}: {what}; {} ranks for responses", self.device, self.ranks)?;
        if let Some(replaced) = &self.replaced {
            write!(f, "; {replaced} comes back at `serpent detach {}`", self.device)?;
        }
        Ok(())
    }
}

impl fmt::Display for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.put_back {
            Some(words) => write!(f, "{}: detached; {words} is back", self.device),
            None => write!(f, "{}: detached; the kernel's default is back", self.device),
        }
    }
}

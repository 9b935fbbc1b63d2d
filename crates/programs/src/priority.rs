//! Processor priorities of the programs of classes: permissions, control groups, and this process's own threads.

use std::{
    collections::HashMap,
    fmt, io,
    sync::{Arc, LazyLock},
};

use kernel::process::{self, Group};
use parking_lot::Mutex;

use crate::config::{Priority, ProgramClass};

/// A class whose priority cannot be given to its programs; the operator has to fix it.
#[derive(Debug)]
pub struct PriorityError {
    class: String,
    error: String,
}

impl fmt::Display for PriorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "priority of the class {}: {}", self.class, self.error)
    }
}

impl std::error::Error for PriorityError {}

/// Prepares the priorities of classes: tries them, makes control groups, and raises this process's threads above
/// real-time classes. Call it before the serving threads start, and at every change of the classes before
/// anything is started for them. It revokes nothing that is in force, which [`settle`] does. Blocks.
///
/// # Errors
/// The class whose priority may not be set, and the permission to grant.
pub fn prepare(classes: &[ProgramClass]) -> Result<(), PriorityError> {
    let failed = |class: &ProgramClass, error: String| PriorityError { class: class.name.clone(), error };
    for class in classes {
        process::check(scheduling(class.priority).0).map_err(|error| failed(class, error.to_string()))?;
    }
    // Raised first, so that control groups are tried in the state in which they are used.
    if let Some(highest) = highest(classes) {
        raise(highest);
    }
    for class in classes {
        if let Priority::CgroupWeight(weight) = class.priority {
            let entered = group(&class.name, weight).and_then(|group| group.try_out());
            entered.map_err(|error| failed(class, error.to_string()))?;
        }
    }
    Ok(())
}

/// Completes [`prepare`] once the classes are in force: control groups get their weights, unused empty
/// groups are removed, and this process's threads are lowered as far as possible. Without classes, nothing remains. It
/// cannot fail. Blocks for moments.
pub fn settle(classes: &[ProgramClass]) {
    let weights = classes.iter().filter_map(|class| match class.priority {
        Priority::CgroupWeight(weight) => Some((class.name.as_str(), weight)),
        _ => None,
    });
    let weights: HashMap<&str, u16> = weights.collect();
    GROUPS.lock().retain(|class, group| match weights.get(class.as_str()) {
        Some(&weight) => {
            if let Err(error) = group.set_weight(weight) {
                tracing::warn!(%class, weight, %error, "the control group of a class keeps its weight");
            }
            true
        }
        // A group is kept while a program is being started in it or still runs in it.
        None => Arc::strong_count(group) > 1 || group.remove_if_empty().is_err(),
    });
    lower(highest(classes));
}

fn highest(classes: &[ProgramClass]) -> Option<u8> {
    classes.iter().filter_map(|class| scheduling(class.priority).0.real_time()).max()
}

/// The real-time priority just below that of the server's threads.
static ABOVE: Mutex<Option<u8>> = Mutex::new(None);

/// Raises the server's threads above a real-time priority, unless they are above it already.
fn raise(highest: u8) {
    let mut above = ABOVE.lock();
    if *above >= Some(highest) {
        return;
    }
    if process::real_time_is_throttled() == Some(false) {
        tracing::warn!(
            "classes have real-time priorities, and kernel.sched_rt_runtime_us is -1: on kernels before 6.12 programs of theirs can \
             keep everything else from the processor (set it to 950000)"
        );
    }
    match process::raise_own_threads(highest) {
        Ok(ours) if ours > highest => tracing::info!(ours, highest, "our threads go before those of real-time classes"),
        Ok(_) => tracing::warn!("a class has the real-time priority 99, and nothing is above it: take 98 at most"),
        Err(error) => {
            return tracing::warn!(
                %error, highest,
                "our threads cannot be put above real-time classes: their programs may keep us from the processor (grant CAP_SYS_NICE)"
            );
        }
    }
    *above = Some(highest);
}

/// Lowers the server's threads to just above a real-time priority, or to ordinary scheduling.
fn lower(highest: Option<u8>) {
    let mut above = ABOVE.lock();
    if *above <= highest {
        return;
    }
    let done = match highest {
        Some(highest) => process::raise_own_threads(highest).map(|_| ()),
        None => process::lower_own_threads(),
    };
    match done {
        Ok(()) => *above = highest,
        Err(error) => tracing::warn!(%error, "our threads stay above real-time classes that are gone"),
    }
}

/// Removes the control groups made by [`prepare`] and kills the processes in them. Blocks.
pub fn finish() {
    GROUPS.lock().clear();
}

/// Control groups, by class name.
type Groups = HashMap<String, Arc<Group>>;

static GROUPS: LazyLock<Mutex<Groups>> = LazyLock::new(Mutex::default);

/// The control group of a class. An existing group keeps its weight, because the caller's configuration may
/// have been replaced. Blocks.
pub(crate) fn group(class: &str, weight: u16) -> io::Result<Arc<Group>> {
    let mut groups = GROUPS.lock();
    if let Some(group) = groups.get(class) {
        return Ok(group.clone());
    }
    let group = Arc::new(Group::make(class, weight)?);
    groups.insert(class.to_owned(), group.clone());
    Ok(group)
}

pub(crate) fn scheduling(priority: Priority) -> (process::Priority, Option<u16>) {
    match priority {
        Priority::Inherited => (process::Priority::Inherited, None),
        Priority::Nice(nice) => (process::Priority::Nice(nice), None),
        Priority::RoundRobin(priority) => (process::Priority::RoundRobin(priority), None),
        Priority::Fifo(priority) => (process::Priority::Fifo(priority), None),
        Priority::CgroupWeight(weight) => (process::Priority::Inherited, Some(weight)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::may::skip;

    fn class(name: &str, priority: Priority) -> ProgramClass {
        ProgramClass { name: name.to_owned(), priority }
    }

    #[test]
    fn a_class_whose_priority_we_may_not_set_is_named_with_what_to_grant() {
        const TEST: &str = "a_class_whose_priority_we_may_not_set_is_named_with_what_to_grant";
        if rustix::process::getrlimit(rustix::process::Resource::Rtprio).current != Some(0) {
            return skip(TEST, &"everybody may set real-time priorities here");
        }
        let refused = std::thread::spawn(move || {
            let none = rustix::thread::CapabilitySets {
                effective: rustix::thread::CapabilitySet::empty(),
                permitted: rustix::thread::CapabilitySet::empty(),
                inheritable: rustix::thread::CapabilitySet::empty(),
            };
            rustix::thread::set_capabilities(None, none).expect("laying capabilities down is always allowed");
            prepare(&[class("tin", Priority::Nice(19)), class("gold", Priority::Fifo(10))])
        });
        let refused = refused.join().expect("thread").expect_err("it may not").to_string();
        assert!(refused.starts_with("priority of the class gold: ") && refused.contains("LimitRTPRIO=10"), "{refused}");
    }

    #[test]
    fn weights_are_set_and_groups_go_when_a_configuration_is_in_force() {
        const TEST: &str = "weights_are_set_and_groups_go_when_a_configuration_is_in_force";
        let classes =
            [class("settled-one", Priority::CgroupWeight(200)), class("settled-two", Priority::CgroupWeight(50))];
        match Group::make("trial", 100) {
            Ok(_) => {}
            // A missing controller, or control groups owned by another system, is a property of the machine.
            Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::ReadOnlyFilesystem) => {
                return eprintln!("SKIPPED: {TEST}: {error}");
            }
            Err(error) => return skip(TEST, &error),
        }
        prepare(&classes).expect("they can be made");
        let folder = |class: &str| GROUPS.lock().get(class).map(|group| group.folder().to_owned());
        let (one, two) = (folder("settled-one").expect("made"), folder("settled-two").expect("made"));
        let weight = |folder: &std::path::Path| {
            let read = |file: &str| std::fs::read_to_string(folder.join(file)).ok();
            let shares = || read("cpu.shares")?.trim().parse::<u32>().ok().map(|shares| shares * 100 / 1024);
            read("cpu.weight").and_then(|weight| weight.trim().parse().ok()).or_else(shares)
        };
        assert_eq!((weight(&one), weight(&two)), (Some(200), Some(50)));
        // A preparation that may still be abandoned changes no weights; neither do programs of the earlier
        // configuration.
        let changed = [class("settled-one", Priority::CgroupWeight(400))];
        prepare(&changed).expect("as before");
        assert_eq!((weight(&one), weight(&two)), (Some(200), Some(50)));
        // A reaped process stays in its group for another moment, so the removal is tried again.
        let settle_without = |class: &str, folder_of_it: &std::path::Path, are_run: bool| {
            let started = Instant::now();
            loop {
                settle(if are_run { &changed } else { &[] });
                if folder(class).is_none() && !folder_of_it.exists() {
                    return;
                }
                assert!(started.elapsed() < Duration::from_secs(60), "the group of {class} stays");
                std::thread::yield_now();
            }
        };
        settle_without("settled-two", &two, true);
        assert_eq!(weight(&one), Some(400));
        drop(group("settled-one", 200).expect("it is there"));
        assert_eq!(weight(&one), Some(400));
        settle_without("settled-one", &one, false);
    }
}

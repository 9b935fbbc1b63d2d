//! The classifier in the kernel: loads it, and finds that of a device and its maps.

use std::{io, os::fd::AsRawFd as _, path::Path};

use aya::{
    Ebpf,
    maps::{Array, Map, MapData, MapInfo, PerCpuArray},
    programs::{ProgramError, ProgramInfo, SchedClassifier, loaded_programs},
};

use crate::{
    error::AttachError,
    maps::{COUNTERS, Counters, SETTINGS_WORDS, Settings},
};

/// The compiled program, from `bpf/attach.bpf.c` by `bpf/build`. Its alignment is that of an ELF file.
static OBJECT: &[u8] = aya::include_bytes_aligned!("bpf/attach.bpf.o");

/// Where the kernel describes its types.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// How often the kernel is asked to check the program. It gives up with EAGAIN when a signal comes, for example when a
/// terminal changes its size; libbpf asks five times, too.
const ATTEMPTS: usize = 5;

/// A loaded program that no device uses yet. The kernel frees it when this is dropped, unless a filter uses it.
pub(crate) struct Loaded {
    bpf: Ebpf,
}

impl Loaded {
    /// Loads the program with its settings.
    pub fn new(settings: &Settings) -> Result<Self, AttachError> {
        if !Path::new(BTF).exists() {
            return Err(AttachError::Kernel {
                lacks: format!(
                    "it does not describe its types ({BTF} is missing); Linux 5.15 or later with CONFIG_DEBUG_INFO_BTF=y does, \
                     as distributions build it"
                ),
            });
        }
        let mut loaded = Self { bpf: Ebpf::load(OBJECT).map_err(|error| refusal(&error))? };
        loaded.check()?;
        let map = loaded.bpf.map_mut("settings").ok_or_else(|| missing("settings"))?;
        write_settings(map, settings)?;
        Ok(loaded)
    }

    /// Has the kernel check the program, and compile it.
    fn check(&mut self) -> Result<(), AttachError> {
        let classifier = self.classifier()?;
        let mut result = classifier.load();
        for _ in 1..ATTEMPTS {
            match &result {
                Err(ProgramError::LoadError { io_error, .. }) if io_error.kind() == io::ErrorKind::WouldBlock => {
                    result = classifier.load();
                }
                _ => break,
            }
        }
        result.map_err(|error| refusal(&error))
    }

    /// The program's descriptor.
    pub fn descriptor(&mut self) -> Result<i32, AttachError> {
        use std::os::fd::AsFd as _;
        let fd = self.classifier()?.fd().map_err(|error| refusal(&error))?;
        Ok(fd.as_fd().as_raw_fd())
    }

    /// A number that two programs of the same instructions share.
    pub fn tag(&mut self) -> Result<u64, AttachError> {
        self.classifier()?.info().map(|info| info.tag()).map_err(|error| refusal(&error))
    }

    /// The map that a server writes.
    pub fn told(&self) -> Result<&Map, AttachError> {
        self.bpf.map("told").ok_or_else(|| missing("told"))
    }

    fn classifier(&mut self) -> Result<&mut SchedClassifier, AttachError> {
        let program = self.bpf.program_mut("choose").ok_or_else(|| missing("choose"))?;
        program.try_into().map_err(|error: ProgramError| refusal(&error))
    }
}

/// The program of an attached device.
pub(crate) struct Running {
    info: ProgramInfo,
}

impl Running {
    /// Finds a program by its number.
    pub fn find(id: u32) -> Result<Self, AttachError> {
        for program in loaded_programs() {
            let info = program.map_err(|error| refusal(&error))?;
            if info.id() == id {
                return Ok(Self { info });
            }
        }
        Err(AttachError::Program { problem: format!("program {id} is gone") })
    }

    /// As [`Loaded::tag`].
    pub fn tag(&self) -> u64 {
        self.info.tag()
    }

    /// The counters, summed over all processors.
    pub fn counters(&self) -> Result<Counters, AttachError> {
        let map = self.map("counters")?;
        let map = PerCpuArray::<_, [u64; COUNTERS]>::try_from(map).map_err(|error| refusal(&error))?;
        let each = map.get(&0, 0).map_err(|error| refusal(&error))?;
        let mut sum = Counters::default();
        each.iter().for_each(|numbers| sum.add(numbers));
        Ok(sum)
    }

    /// The settings in force.
    pub fn settings(&self) -> Result<Settings, AttachError> {
        let map = self.map("settings")?;
        let map = Array::<_, [u32; SETTINGS_WORDS]>::try_from(map).map_err(|error| refusal(&error))?;
        map.get(&0, 0).map(|words| Settings::from_words(&words)).map_err(|error| refusal(&error))
    }

    /// Changes the settings. A packet in between may see a part of the new ones.
    pub fn set_settings(&self, settings: &Settings) -> Result<(), AttachError> {
        write_settings(&mut self.map("settings")?, settings)
    }

    /// The map that a server writes.
    pub fn told(&self) -> Result<Map, AttachError> {
        self.map("told")
    }

    fn map(&self, name: &str) -> Result<Map, AttachError> {
        let ids = self.info.map_ids().map_err(|error| refusal(&error))?.unwrap_or_default();
        for id in ids {
            let info = MapInfo::from_id(id).map_err(|error| refusal(&error))?;
            if info.name_as_str() == Some(name) {
                let data = MapData::from_id(id).map_err(|error| refusal(&error))?;
                return Map::from_map_data(data).map_err(|error| refusal(&error));
            }
        }
        Err(missing(name))
    }
}

fn write_settings(map: &mut Map, settings: &Settings) -> Result<(), AttachError> {
    let mut map = Array::<_, [u32; SETTINGS_WORDS]>::try_from(map).map_err(|error| refusal(&error))?;
    map.set(0, settings.to_words(), 0).map_err(|error| refusal(&error))
}

fn missing(name: &str) -> AttachError {
    AttachError::Program { problem: format!("it has no {name}; this is a fault of Serpent's build") }
}

/// The error with all its causes; those of the verifier are long, and their end tells.
fn refusal(error: &(dyn std::error::Error + 'static)) -> AttachError {
    let mut problem = error.to_string();
    let mut cause = error.source();
    let mut is_denied = false;
    while let Some(error) = cause {
        problem += &format!(": {error}");
        is_denied |=
            error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
        cause = error.source();
    }
    if is_denied {
        return AttachError::NotPermitted { what: "load a program into the kernel".into() };
    }
    // The verifier tells each of its steps; the last ones say what it refuses.
    const MOST_LINES: usize = 12;
    let lines: Vec<&str> = problem.lines().collect();
    let skipped = lines.len().saturating_sub(MOST_LINES);
    if skipped > 0 {
        problem = format!("{}\n[{} lines left out]\n{}", lines[0], skipped - 1, lines[skipped..].join("\n"));
    }
    AttachError::Program { problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_the_program_and_its_maps() {
        let object = aya_names();
        for name in ["choose", "settings", "flows", "told", "strangers", "heads", "counters"] {
            assert!(object.contains(&name.to_owned()), "{name}: {object:?}");
        }
    }

    /// Names in the object's table of strings.
    fn aya_names() -> Vec<String> {
        OBJECT.split(|&byte| byte == 0).filter_map(|name| String::from_utf8(name.to_vec()).ok()).collect()
    }
}

//! Limits of connections and requests, and the memory of the file cache.

use server::config::{CacheConfig, Limits};

use super::{named_files::FileKind, resolver::Resolver};
use crate::{
    config::{overrides::Overrides, problems::Problem, raw::Raw},
    open_files, values,
};

impl Resolver<'_> {
    pub(super) fn limits(&mut self, raw: &Raw, flags: &Overrides, passes_on: bool) -> Limits {
        let (section, default) = (&raw.limits, Limits::default());
        let to_usize = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let head = |text: &str| match values::size(text) {
            Ok(bytes @ 1024..=1_048_576) => Ok(bytes),
            Ok(_) => Err("a request head takes from 1KiB to 1MiB".to_owned()),
            Err(message) => Err(message),
        };
        Limits {
            connections: self
                .setting(flags.connections, &section.connections, values::connections, None)
                .map_or_else(|| open_files::connections_that_fit(passes_on), to_usize),
            connections_per_client: self.setting(
                None,
                &section.connections_per_client,
                values::limit_or_off,
                default.connections_per_client,
            ),
            request_head_bytes: to_usize(self.setting(
                None,
                &section.request_head,
                head,
                default.request_head_bytes as u64,
            )),
            request_headers: to_usize(self.setting(
                None,
                &section.request_headers,
                |text| values::count(text, 10_000),
                default.request_headers as u64,
            )),
            request_body_bytes: self.setting(
                None,
                &section.request_body,
                values::body_size,
                default.request_body_bytes,
            ),
            handshake_timeout: self.setting(
                None,
                &section.handshake_timeout,
                values::duration,
                default.handshake_timeout,
            ),
            head_timeout: self.setting(None, &section.head_timeout, values::duration, default.head_timeout),
            request_body_rate: self.setting(
                None,
                &section.request_body_rate,
                values::size_or_off,
                default.request_body_rate,
            ),
            idle_timeout: self.setting(None, &section.idle_timeout, values::duration, default.idle_timeout),
            write_timeout: self.setting(None, &section.write_timeout, values::duration, default.write_timeout),
            response_rate: self.setting(None, &section.response_rate, values::size_or_off, default.response_rate),
            http2_streams: self.setting(
                None,
                &section.http2_streams,
                |text| values::count(text, 65_536).map(|streams| streams as u32),
                default.http2_streams,
            ),
            shutdown_delay: self
                .setting(None, &section.shutdown_delay, values::duration_or_off, None)
                .unwrap_or(default.shutdown_delay),
            shutdown_timeout: self.setting(
                flags.shutdown_timeout,
                &section.shutdown_timeout,
                values::duration_or_off,
                default.shutdown_timeout,
            ),
            body_memory_bytes: to_usize(self.setting(
                None,
                &section.body_memory,
                values::size_or_off,
                default.body_memory_bytes as u64,
            )),
            body_file_bytes: self.setting(None, &section.body_file, values::size_or_off, default.body_file_bytes),
            body_files_bytes: self.setting(None, &section.body_files, values::size, default.body_files_bytes),
            body_directory: match &section.body_directory {
                Some(written) if written.get_ref().0 == "auto" => None,
                written => self.file(written, FileKind::Directory),
            },
        }
    }

    pub(super) fn cache(&mut self, raw: &Raw, flags: &Overrides) -> CacheConfig {
        let (section, default) = (&raw.cache, CacheConfig::default());
        let config = CacheConfig {
            capacity_bytes: self.setting(flags.cache, &section.capacity, values::memory_or_off, default.capacity_bytes),
            max_file_bytes: self.setting(None, &section.max_file, values::size, default.max_file_bytes),
            revalidate_after: self.setting(
                None,
                &section.revalidate_after,
                values::duration_or_zero,
                default.revalidate_after,
            ),
            copies_bytes: self.setting(None, &section.compressed, values::memory_or_off, default.copies_bytes),
        };
        if let Some(written) = &section.compressed
            && flags.cache.is_none()
            && config.capacity_bytes == 0
            && config.copies_bytes > 0
        {
            let message = "`compressed` has copies of the files in `capacity`, which is `off`";
            self.problems.push(Problem::new(message, Some(written.span())).help("leave `compressed` out"));
        }
        config
    }
}

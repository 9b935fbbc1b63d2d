//! Memory that is kept and not used.

/// Gives the memory of whole pages within `unused` back to the system, which gives it again when the pages are next
/// written. Afterwards the bytes are unspecified. Does nothing on systems other than Linux.
pub fn give_back(unused: &mut [u8]) {
    #[cfg(target_os = "linux")]
    {
        let page_bytes = rustix::param::page_size();
        let start = unused.as_ptr().align_offset(page_bytes).min(unused.len());
        let pages = &mut unused[start..];
        let bytes = pages.len() - pages.len() % page_bytes;
        if bytes > 0 {
            // SAFETY: the range is whole pages within a slice that is borrowed for writing, so nothing else refers to its bytes. The
            // mapping stays. The pages read as zeros afterwards, or as the file that they map: as initialised bytes in either case.
            // When it fails, for locked memory, nothing has changed.
            unsafe { libc::madvise(pages.as_mut_ptr().cast(), bytes, libc::MADV_DONTNEED) };
        }
    }
    let _ = unused;
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// Bytes of this process's memory that are in use, of the mapping's pages within `bytes`.
    fn resident_pages(bytes: &[u8]) -> usize {
        let page_bytes = rustix::param::page_size();
        let start = bytes.as_ptr().align_offset(page_bytes);
        let pages = &bytes[start..];
        let mut resident = vec![0_u8; pages.len() / page_bytes];
        // SAFETY: the range begins at a page and is mapped, and the vector has a byte for each page.
        let result = unsafe {
            libc::mincore(pages.as_ptr().cast_mut().cast(), resident.len() * page_bytes, resident.as_mut_ptr())
        };
        assert_eq!(result, 0);
        resident.iter().filter(|&&page| page & 1 == 1).count()
    }

    #[test]
    fn whole_pages_are_given_back_and_bytes_beside_them_stay() {
        let page_bytes = rustix::param::page_size();
        let mut bytes = vec![7_u8; 8 * page_bytes];
        let start = bytes.as_ptr().align_offset(page_bytes);
        let held = resident_pages(&bytes);
        let unused = start + 1..start + 5 * page_bytes - 1;
        give_back(&mut bytes[unused.clone()]);
        assert_eq!(held - resident_pages(&bytes), 3);
        assert!(bytes[..start + page_bytes].iter().all(|&byte| byte == 7));
        assert!(bytes[start + 4 * page_bytes..].iter().all(|&byte| byte == 7));
        bytes[unused].fill(9);
        assert_eq!(bytes[start + 2 * page_bytes], 9);
    }

    #[test]
    fn less_than_a_page_stays() {
        let mut bytes = vec![7_u8; rustix::param::page_size() - 1];
        give_back(&mut bytes);
        give_back(&mut []);
        assert!(bytes.iter().all(|&byte| byte == 7));
    }
}

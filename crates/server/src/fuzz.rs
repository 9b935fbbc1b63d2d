//! The functions that the fuzz targets run ([`fuzz/`](../../../../fuzz)), each given any bytes at all. They are here
//! because they use private parts of this crate. An ordinary test checks that they still hold for the seeds.

pub use crate::{
    admin::fuzz::admin,
    http::fuzz::{http2, paths, requests},
};

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    type Target = fn(&[u8]);

    #[test]
    fn every_seed_passes_its_target() {
        let targets: [(&str, Target); 4] =
            [("admin", admin), ("http2", http2), ("paths", paths), ("requests", requests)];
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
        for (name, target) in targets {
            let files = fs::read_dir(seeds.join(name)).expect("the target has seeds");
            let files: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
            assert!(!files.is_empty(), "{name} has no seeds");
            for file in files {
                println!("{}", file.display());
                target(&fs::read(&file).expect("a seed that can be read"));
            }
        }
    }
}

//! What the fuzz targets run ([`fuzz/`](../../../../fuzz)), each given any bytes at all. They are here because they look at what is
//! private; that they still hold for the seeds is an ordinary test.

pub use crate::config::fuzz::configuration;

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    #[test]
    fn every_seed_passes_its_target() {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let seeds = ["fuzz/seeds/configuration", "examples", "examples/two-tier"].map(|folder| repository.join(folder));
        for folder in seeds {
            let files = fs::read_dir(folder).expect("the target has seeds");
            let files = files.map(|file| file.expect("a file").path());
            let files: Vec<_> = files.filter(|path| path.is_file()).collect();
            assert!(!files.is_empty());
            for file in files {
                println!("{}", file.display());
                super::configuration(&fs::read(&file).expect("a seed that can be read"));
            }
        }
    }
}

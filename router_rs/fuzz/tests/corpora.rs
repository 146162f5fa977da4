//! Runs the inputs of the repository through their targets once more, without a fuzzer.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use router_fuzz::TARGETS;
use tar::Archive;

/// The inputs of each target, by their paths.
type Corpora = BTreeMap<String, BTreeMap<PathBuf, Vec<u8>>>;

#[test]
fn no_kept_input_breaks_its_target() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut corpora = Corpora::new();
    add_made(&crate_folder.join("corpora.tar.gz"), &mut corpora);
    add_written(&crate_folder.join("corpus"), &mut corpora);
    for (name, run) in TARGETS {
        let inputs = corpora.remove(name);
        for (path, input) in inputs.unwrap_or_else(|| panic!("the corpus of {name} is empty")) {
            // Shown by the harness for a failing test, which would not name the input otherwise.
            eprintln!("{}", path.display());
            run(&input);
        }
    }
    assert!(corpora.is_empty(), "no target for {:?}", corpora.keys());
}

/// Adds what the fuzzers made: `<target>/<hash>` in an archive.
fn add_made(archive: &Path, corpora: &mut Corpora) {
    let mut archive = Archive::new(GzDecoder::new(File::open(archive).unwrap()));
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut input = Vec::new();
        entry.read_to_end(&mut input).unwrap();
        add(entry.path().unwrap().into_owned(), input, corpora);
    }
}

/// Adds what people wrote: `<target>/<name>` in a folder.
fn add_written(folder: &Path, corpora: &mut Corpora) {
    for target in fs::read_dir(folder).unwrap() {
        for file in fs::read_dir(target.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let input = fs::read(&path).unwrap();
            add(path, input, corpora);
        }
    }
}

fn add(path: PathBuf, input: Vec<u8>, corpora: &mut Corpora) {
    let target = path.parent().and_then(Path::file_name).expect("a folder for each target");
    let target = target.to_string_lossy().into_owned();
    corpora.entry(target).or_default().insert(path, input);
}

//! Runs the inputs that the fuzzers have kept once more, without a fuzzer.

use std::path::Path;

use router_fuzz::TARGETS;

#[test]
fn no_kept_input_breaks_its_target() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for (name, run) in TARGETS {
        let mut files: Vec<_> = std::fs::read_dir(corpora.join(name))
            .unwrap_or_else(|error| panic!("no corpus of {name}: {error}"))
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "the corpus of {name} is empty");
        for file in files {
            // Shown by the harness for a failing test, which would not name the file otherwise.
            eprintln!("{}", file.display());
            run(&std::fs::read(&file).unwrap());
        }
    }
}

//! Runs the scenario files: plain text with one command per line, and the router's answers under
//! it.
//!
//! A line at the margin is a command, `#` starts a comment, indented lines are the expected output
//! of the command above. The commands are listed in `scenarios/README.md`. With
//! `UPDATE_SCENARIOS=1` the files are rewritten with the actual output: read the diff.

mod scenario_script;

use std::fs;
use std::path::{Path, PathBuf};

use scenario_script::Interpreter;

#[test]
fn every_scenario_file_says_what_the_router_does() {
    let update = std::env::var_os("UPDATE_SCENARIOS").is_some_and(|value| value == "1");
    let mut differences = String::new();
    let files = scenario_files();
    assert!(files.len() >= 12, "only {} scenario files found", files.len());
    for file in files {
        let text = fs::read_to_string(&file).expect("a scenario file is readable");
        let actual = replay(&file, &text);
        if update {
            fs::write(&file, &actual).expect("a scenario file is writable");
        } else if text != actual {
            differences += &difference(&file, &text, &actual);
        }
    }
    assert!(
        differences.is_empty(),
        "the router differs from its scenarios (- expected, + actual):\n{differences}\
         To accept what it does now: UPDATE_SCENARIOS=1 cargo test --test scenario\n"
    );
}

#[test]
fn a_difference_names_file_line_and_both_sides() {
    let expected = "replicas r1:1\noffer a\n  a: parked\ndone a\n";
    let actual = replay(Path::new("x.txt"), expected);
    assert_eq!("replicas r1:1\noffer a\n  a: sent to r1\ndone a\n", actual);
    assert_eq!(
        "x.txt:2: offer a\n    -   a: parked\n    +   a: sent to r1\n",
        difference(Path::new("x.txt"), expected, &actual)
    );
}

fn scenario_files() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .expect("the scenario directory exists")
        .map(|entry| entry.expect("a directory entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    files
}

/// The text with the expected outputs replaced by the actual ones.
fn replay(file: &Path, text: &str) -> String {
    let mut interpreter = Interpreter::new();
    let mut actual = String::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.starts_with("  ") {
            continue;
        }
        actual += line;
        actual += "\n";
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let outputs = interpreter
            .run(line)
            .unwrap_or_else(|problem| panic!("{}:{number}: {line}: {problem}", file.display()));
        for output in outputs {
            actual.extend(["  ", &output, "\n"]);
        }
    }
    actual
}

/// The commands whose outputs differ, with both.
fn difference(file: &Path, expected: &str, actual: &str) -> String {
    let (expected, actual) = (stanzas(expected), stanzas(actual));
    let mut report = String::new();
    for ((number, command, wanted), (_, _, got)) in expected.iter().zip(&actual) {
        if wanted == got {
            continue;
        }
        let place = format!("{}:{number}", file.display());
        report.extend([&place, ": ", command, "\n"]);
        for (sign, lines) in [("    - ", wanted), ("    + ", got)] {
            for line in lines {
                report.extend([sign, line, "\n"]);
            }
        }
    }
    report
}

/// `(line number, line at the margin, indented lines under it)`.
fn stanzas(text: &str) -> Vec<(usize, &str, Vec<&str>)> {
    let mut stanzas: Vec<(usize, &str, Vec<&str>)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        match stanzas.last_mut() {
            Some((_, _, outputs)) if line.starts_with("  ") => outputs.push(line),
            _ => stanzas.push((number, line, Vec::new())),
        }
    }
    stanzas
}

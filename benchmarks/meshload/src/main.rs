//! A mesh of thousands for one controller: options in, lines of JSON out, the last one the report.
#![forbid(unsafe_code)]

mod drive;
mod ledger;
mod link;
mod messages;
mod options;
mod replica;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;
use tokio::task::LocalSet;

use crate::options::Options;

fn main() -> ExitCode {
    let options = Options::parse();
    let report = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(drive::RunError::from)
        .and_then(|runtime| LocalSet::new().block_on(&runtime, drive::run(options, announce)));
    match report {
        Ok(report) => {
            let text = serde_json::to_string(&report).expect("invariant: a report is plain data");
            write_line(&mut io::stdout(), &text);
            let is_right = report.missing == 0 && report.broken == 0 && report.changes > 0;
            if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            write_line(&mut io::stderr(), &format!("pyserve-meshload: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn announce(phase: &str) {
    write_line(&mut io::stdout(), &format!(r#"{{"event": "{phase}"}}"#));
}

fn write_line(output: &mut impl Write, text: &str) {
    // A reader that went away wants no more output; there is nobody left to tell.
    let _ = writeln!(output, "{text}").and_then(|()| output.flush());
}

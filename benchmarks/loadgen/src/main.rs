//! The command: options in, one line of JSON out.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, error::ErrorKind};
use loadgen::drive::{Moment, run};
use loadgen::options::Options;

/// The generator allocates a few small blocks a call; this takes about a tenth off its CPU time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let options = Options::parse();
    let plan = match options.plan() {
        Ok(plan) => plan,
        Err(error) => Options::command().error(ErrorKind::ValueValidation, error).exit(),
    };
    let report = match run(&plan, announce) {
        Ok(report) => report,
        Err(error) => {
            write_line(&mut io::stderr(), &format!("pyserve-loadgen: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let text = serde_json::to_string(&report).expect("invariant: a report is plain data");
    write_line(&mut io::stdout(), &text);
    if report.all_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn announce(moment: Moment) {
    let event = match moment {
        Moment::Measuring => r#"{"event": "measuring"}"#,
        Moment::Measured => r#"{"event": "measured"}"#,
    };
    write_line(&mut io::stdout(), event);
}

fn write_line(output: &mut impl Write, text: &str) {
    // A reader that went away wants no more output; there is nobody left to tell.
    let _ = writeln!(output, "{text}").and_then(|()| output.flush());
}

//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Let replicas join a controller, let routers watch it, change replicas and time the news.
///
/// Exit code: 0 when every change reached every watcher, 1 when one did not or a stream broke.
#[derive(Debug, Clone, Parser)]
#[command(name = "pyserve-meshload", version)]
pub(crate) struct Options {
    /// Controller, as host:port
    #[arg(long)]
    pub(crate) controller: String,
    /// File with the mesh token, in hexadecimal
    #[arg(long)]
    pub(crate) token_file: PathBuf,
    /// Version of pyserve that all of them say they run
    #[arg(long)]
    pub(crate) pyserve_version: String,
    #[arg(long, default_value_t = 4000)]
    pub(crate) replicas: usize,
    /// Deployments that the replicas belong to, by turns
    #[arg(long, default_value_t = 1)]
    pub(crate) deployments: usize,
    #[arg(long, default_value_t = 200)]
    pub(crate) watchers: usize,
    /// Changes a second that routers have to hear of
    #[arg(long, default_value_t = 400.0)]
    pub(crate) rate: f64,
    /// Health reports a second besides, which change no view
    #[arg(long, default_value_t = 40.0)]
    pub(crate) health_rate: f64,
    /// Measured time in seconds
    #[arg(long, default_value_t = 30.0)]
    pub(crate) duration_s: f64,
    /// Changes before the measurement, in seconds
    #[arg(long, default_value_t = 5.0)]
    pub(crate) warmup_s: f64,
    /// Time without a change, in seconds, before the changes begin
    #[arg(long, default_value_t = 10.0)]
    pub(crate) idle_s: f64,
    /// Replicas that may be joining at a time
    #[arg(long, default_value_t = 64)]
    pub(crate) joining: usize,
    /// Watchers understand patches of views, as routers of this version do
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub(crate) patches: bool,
}

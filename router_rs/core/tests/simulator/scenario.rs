//! The contents of a scenario file.
//!
//! One `name = value` a line, in the part of TOML that needs no library: numbers, `true`, quoted
//! words and lists of numbers in one line; `#` starts a comment. Units are part of the names.

use std::fmt::{self, Display};
use std::fs;
use std::path::Path;

use router_core::Nanos;

use super::fields::Fields;
use super::phases::Phase;
use super::steps::Steps;

/// How a replica spends its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Executes {
    /// As an event loop: one call after the other holds it. What does not hold it is awaited after
    /// that, all at once; where no phase says otherwise, all does.
    Serial,
    /// All its calls at once.
    Parallel,
    /// So many at a time; long calls only wait for something, and take nothing from the others.
    Workers,
    /// In steps of several calls, as `pyserve/batching/batcher.py` with a fixed window.
    Batches,
    /// All its calls at once, each as much slower as there are others.
    Shared,
    /// In steps that calls join and leave, as far as a budget of costs goes.
    Steps,
}

/// The distribution of a call's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Lognormal,
    Exponential,
    Constant,
    /// Pareto's, with an exponent of 1.6 and a bound of a hundred means.
    Heavy,
}

/// A world, as a file describes it. Times are in the units of the names; `0` in a time or a count
/// that can be off means off.
#[allow(clippy::struct_excessive_bools)] // a file has a switch for each
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    pub(crate) routers: usize,
    /// A replica's report of its load is as old as this when a router gets it.
    pub(crate) report_age_ms: f64,
    pub(crate) replicas: usize,
    /// Work per time, relative; replica `i` has the `i`-th, and again from the start.
    pub(crate) speeds: Vec<f64>,
    /// `max_ongoing_requests`; 0: none.
    pub(crate) limit: u32,
    pub(crate) executes: Executes,
    /// Replicas say on which calls they worked alone.
    pub(crate) tells: bool,
    /// The first replicas are on the routers' node, the next ones in their zone, the rest beyond.
    pub(crate) on_node: usize,
    pub(crate) in_zone: usize,
    pub(crate) prefer_near: bool,
    /// `RouterConfig::load_bound`.
    pub(crate) load_bound: f64,
    /// One way through the network, to the node, the zone and beyond.
    pub(crate) network_ms: Vec<f64>,

    /// Offered work over what the replicas can do, each at its speed and all hits.
    pub(crate) load: f64,
    /// From this time on it is another; 0: never.
    pub(crate) jump_at_s: f64,
    pub(crate) jump_load: f64,
    /// Callers who ask again as soon as they are answered, instead of `load`; 0: none.
    pub(crate) users: usize,
    pub(crate) duration_s: f64,
    /// Calls that are offered earlier are not in the figures.
    pub(crate) warmup_s: f64,
    pub(crate) shape: Shape,
    pub(crate) work_ms: f64,
    /// Of the logarithm of the work, when the shape is lognormal.
    pub(crate) work_sigma: f64,
    pub(crate) work_max_ms: f64,
    /// How many calls take a time between these two instead, evenly by its logarithm.
    pub(crate) long_percent: f64,
    pub(crate) long_ms: Vec<f64>,
    /// Of a replica whose `executes` is `workers`.
    pub(crate) workers: usize,
    pub(crate) queue_len_max: u32,
    pub(crate) deadline_ms: f64,
    /// How many calls have the deadline.
    pub(crate) deadline_percent: f64,
    /// How many callers leave; they wait for an exponential time with the mean of the work.
    pub(crate) cancelled_percent: f64,

    /// The first replicas take this many times as long, from and until.
    pub(crate) slow_factor: f64,
    pub(crate) slow_from_s: f64,
    pub(crate) slow_until_s: f64,
    /// So many replicas, of the first ones.
    pub(crate) slow_replicas: usize,
    /// The first so many replicas answer `RESOURCE_EXHAUSTED` after a millisecond, from and until;
    /// without an until for ever.
    pub(crate) failing: usize,
    pub(crate) fails_from_s: f64,
    pub(crate) fails_until_s: f64,
    /// How often a call that fails is sent at most.
    pub(crate) attempts_max: u8,
    /// Replica 0 dies then, which the membership learns `CRASH_SEEN_AFTER` later.
    pub(crate) crash_at_s: f64,
    /// The last replica is there only from then on; 0: from the start.
    pub(crate) joins_at_s: f64,
    /// The extra time of a replica's first call.
    pub(crate) cold_ms: f64,

    /// Calls name one of so many models; popularity is Zipf's with `zipf`.
    pub(crate) models: usize,
    /// Calls belong to one of so many sessions, alike.
    pub(crate) sessions: usize,
    pub(crate) zipf: f64,
    /// Sessions are named as cache keys, which replicas report, instead of by a header.
    pub(crate) tells_keys: bool,
    /// Replicas report changes of what they keep at most so often.
    pub(crate) tells_every_ms: f64,
    /// All sessions begin alike: who hashes their beginning takes them for one.
    pub(crate) alike: bool,
    /// Each seed has other names for them, so that none is lucky with where sessions belong.
    pub(crate) fresh_names: bool,
    /// Models, or the prefixes of sessions, that a replica keeps: the least recently used leaves.
    pub(crate) slots: usize,
    /// The load time of a model, in mean works.
    pub(crate) load_works: f64,
    /// The part of the work that a known prefix saves.
    pub(crate) prefix_saves: f64,

    pub(crate) batch_size_max: usize,
    pub(crate) batch_window_ms: f64,
    pub(crate) step_fixed_ms: f64,
    pub(crate) step_per_call_ms: f64,
    /// A step takes as long as the longest of its calls, beside that.
    pub(crate) step_takes_work: bool,
    pub(crate) steps: Steps,
    /// If there are any, they say what comes instead of `load`, `users` and `work_ms`.
    pub(crate) phases: Vec<Phase>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            name: String::new(),
            routers: 1,
            report_age_ms: 0.0,
            replicas: 16,
            speeds: vec![1.0],
            limit: 4,
            executes: Executes::Serial,
            tells: true,
            on_node: 0,
            in_zone: 0,
            prefer_near: false,
            load_bound: 1.25,
            network_ms: vec![0.1, 0.1, 0.1],
            load: 0.9,
            jump_at_s: 0.0,
            jump_load: 0.0,
            users: 0,
            duration_s: 40.0,
            warmup_s: 2.0,
            shape: Shape::Lognormal,
            work_ms: 10.0,
            work_sigma: 1.0,
            work_max_ms: f64::INFINITY,
            long_percent: 0.0,
            long_ms: vec![1.0, 1.0],
            workers: 1,
            queue_len_max: 10_000,
            deadline_ms: 0.0,
            deadline_percent: 100.0,
            cancelled_percent: 0.0,
            slow_factor: 1.0,
            slow_from_s: 0.0,
            slow_until_s: 0.0,
            slow_replicas: 1,
            failing: 0,
            fails_from_s: 0.0,
            fails_until_s: 0.0,
            attempts_max: 1,
            crash_at_s: 0.0,
            joins_at_s: 0.0,
            cold_ms: 0.0,
            models: 0,
            sessions: 0,
            zipf: 1.0,
            tells_keys: false,
            tells_every_ms: 0.0,
            alike: false,
            fresh_names: false,
            slots: 0,
            load_works: 0.0,
            prefix_saves: 0.0,
            batch_size_max: 0,
            batch_window_ms: 0.0,
            step_fixed_ms: 0.0,
            step_per_call_ms: 0.0,
            step_takes_work: false,
            steps: Steps::default(),
            phases: Vec::new(),
        }
    }
}

// === impl Scenario: files ===

impl Scenario {
    /// Reads `tests/scenarios/<name>.toml`.
    pub(crate) fn read(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
        let path = folder.join(format!("{name}.toml"));
        let text =
            fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { name: name.to_owned(), ..Self::parse(&text) }
    }

    /// Panics with the line of what it does not know.
    pub(crate) fn parse(text: &str) -> Self {
        let mut parts = text.split("[[phase]]");
        let mut fields = Fields::of(parts.next().unwrap_or_default());
        let mut scenario = Self::default();
        scenario.take_places(&mut fields);
        scenario.take_calls(&mut fields);
        scenario.take_events(&mut fields);
        scenario.take_contents(&mut fields);
        fields.finish();
        for part in parts {
            let mut fields = Fields::of(part);
            scenario.phases.push(Phase::parse(&mut fields));
            fields.finish();
        }
        scenario
    }

    fn take_places(&mut self, fields: &mut Fields) {
        fields.number("routers", &mut self.routers);
        fields.number("report_age_ms", &mut self.report_age_ms);
        fields.number("replicas", &mut self.replicas);
        fields.list("speeds", &mut self.speeds);
        fields.number("limit", &mut self.limit);
        fields.word("executes", &mut self.executes, |word| match word {
            "serial" => Some(Executes::Serial),
            "parallel" => Some(Executes::Parallel),
            "workers" => Some(Executes::Workers),
            "batches" => Some(Executes::Batches),
            "shared" => Some(Executes::Shared),
            "steps" => Some(Executes::Steps),
            _ => None,
        });
        fields.number("tells", &mut self.tells);
        fields.number("on_node", &mut self.on_node);
        fields.number("in_zone", &mut self.in_zone);
        fields.number("prefer_near", &mut self.prefer_near);
        fields.number("load_bound", &mut self.load_bound);
        fields.list("network_ms", &mut self.network_ms);
    }

    fn take_calls(&mut self, fields: &mut Fields) {
        fields.number("load", &mut self.load);
        fields.number("jump_at_s", &mut self.jump_at_s);
        fields.number("jump_load", &mut self.jump_load);
        fields.number("users", &mut self.users);
        fields.number("duration_s", &mut self.duration_s);
        fields.number("warmup_s", &mut self.warmup_s);
        fields.word("shape", &mut self.shape, Shape::of);
        fields.number("work_ms", &mut self.work_ms);
        fields.number("work_sigma", &mut self.work_sigma);
        fields.number("work_max_ms", &mut self.work_max_ms);
        fields.number("long_percent", &mut self.long_percent);
        fields.list("long_ms", &mut self.long_ms);
        fields.number("workers", &mut self.workers);
        fields.number("queue_len_max", &mut self.queue_len_max);
        fields.number("deadline_ms", &mut self.deadline_ms);
        fields.number("deadline_percent", &mut self.deadline_percent);
        fields.number("cancelled_percent", &mut self.cancelled_percent);
    }

    fn take_events(&mut self, fields: &mut Fields) {
        fields.number("slow_factor", &mut self.slow_factor);
        fields.number("slow_from_s", &mut self.slow_from_s);
        fields.number("slow_until_s", &mut self.slow_until_s);
        fields.number("slow_replicas", &mut self.slow_replicas);
        fields.number("failing", &mut self.failing);
        fields.number("fails_from_s", &mut self.fails_from_s);
        fields.number("fails_until_s", &mut self.fails_until_s);
        fields.number("attempts_max", &mut self.attempts_max);
        fields.number("crash_at_s", &mut self.crash_at_s);
        fields.number("joins_at_s", &mut self.joins_at_s);
        fields.number("cold_ms", &mut self.cold_ms);
    }

    fn take_contents(&mut self, fields: &mut Fields) {
        fields.number("models", &mut self.models);
        fields.number("sessions", &mut self.sessions);
        fields.number("zipf", &mut self.zipf);
        fields.number("tells_keys", &mut self.tells_keys);
        fields.number("tells_every_ms", &mut self.tells_every_ms);
        fields.number("alike", &mut self.alike);
        fields.number("fresh_names", &mut self.fresh_names);
        fields.number("slots", &mut self.slots);
        fields.number("load_works", &mut self.load_works);
        fields.number("prefix_saves", &mut self.prefix_saves);
        fields.number("batch_size_max", &mut self.batch_size_max);
        fields.number("batch_window_ms", &mut self.batch_window_ms);
        fields.number("step_fixed_ms", &mut self.step_fixed_ms);
        fields.number("step_per_call_ms", &mut self.step_per_call_ms);
        fields.number("step_takes_work", &mut self.step_takes_work);
        self.steps.parse(fields);
    }
}

// === impl Scenario: what follows from it ===

impl Scenario {
    /// Replica `index` works this fast when nothing slows it.
    pub(crate) fn speed(&self, index: usize) -> f64 {
        self.speeds[index % self.speeds.len()]
    }

    /// Calls a second that all replicas can answer together.
    pub(crate) fn capacity_per_s(&self) -> f64 {
        let speeds: f64 = (0..self.replicas).map(|index| self.speed(index)).sum();
        let calls_per_ms = match self.executes {
            Executes::Serial | Executes::Shared => 1.0 / self.busy_ms(),
            Executes::Parallel => f64::from(self.limit) / self.busy_ms(),
            Executes::Workers => self.workers as f64 / self.busy_ms(),
            Executes::Steps => self.steps.running_max as f64 / self.step_fixed_ms,
            Executes::Batches => {
                let size = self.batch_size_max as f64;
                size / (self.step_fixed_ms + size * self.step_per_call_ms)
            }
        };
        speeds * calls_per_ms * 1e3
    }

    /// On how many calls a replica works at once; `None`: it may hold more, or decides itself.
    pub(crate) fn works_on(&self) -> Option<u32> {
        match self.executes {
            Executes::Serial => Some(1),
            Executes::Parallel
            | Executes::Workers
            | Executes::Batches
            | Executes::Shared
            | Executes::Steps => None,
        }
    }

    /// For how long a call keeps a replica, or one of its workers, busy on average.
    fn busy_ms(&self) -> f64 {
        let long = self.long_percent / 100.0;
        let long_ms = match self.executes {
            Executes::Workers => 0.0,
            _ => log_uniform_mean(&self.long_ms),
        };
        (1.0 - long) * self.work_ms + long * long_ms
    }

    /// The index in `network_ms` of the way to the replica.
    pub(crate) fn tier(&self, index: usize) -> usize {
        match index {
            _ if index < self.on_node => 0,
            _ if index < self.on_node + self.in_zone => 1,
            _ => 2,
        }
    }

    pub(crate) fn one_way(&self, index: usize) -> Nanos {
        millis(self.network_ms[self.tier(index)])
    }

    /// The most calls a router may have at a replica.
    pub(crate) fn capacity(&self) -> u32 {
        if self.limit == 0 { u32::MAX } else { self.limit }
    }
}

/// The mean of what lies between two values, evenly by its logarithm.
fn log_uniform_mean(ends: &[f64]) -> f64 {
    let (least, most) = (ends[0], ends[1]);
    if most > least { (most - least) / (most / least).ln() } else { least }
}

/// The nearest number of nanoseconds.
pub(crate) fn millis(millis: f64) -> Nanos {
    Nanos((millis * 1e6).round() as u64)
}

pub(crate) fn seconds(seconds: f64) -> Nanos {
    millis(seconds * 1e3)
}

// === impl Shape ===

impl Shape {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Lognormal, "lognormal"),
        (Self::Exponential, "exponential"),
        (Self::Constant, "constant"),
        (Self::Heavy, "heavy"),
    ];

    pub(crate) fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, name)| *name == word).map(|(shape, _)| *shape)
    }

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(shape, _)| *shape == self).map_or("", |(_, name)| *name)
    }
}

// === impl Scenario: text ===

/// What a generated workload sets, as a file; the rest is as by default.
impl Display for Scenario {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        let executes = match self.executes {
            Executes::Serial => "serial",
            Executes::Parallel => "parallel",
            Executes::Workers => "workers",
            Executes::Batches => "batches",
            Executes::Shared => "shared",
            Executes::Steps => "steps",
        };
        writeln!(text, "# {}", self.name)?;
        writeln!(text, "routers = {}\nreplicas = {}", self.routers, self.replicas)?;
        writeln!(text, "speeds = {:?}\nlimit = {}", self.speeds, self.limit)?;
        writeln!(text, "executes = \"{executes}\"\ntells = {}", self.tells)?;
        writeln!(text, "workers = {}\nnetwork_ms = {:?}", self.workers, self.network_ms)?;
        writeln!(text, "duration_s = {}\nwarmup_s = {}", self.duration_s, self.warmup_s)?;
        writeln!(text, "slow_factor = {}\nslow_from_s = {}", self.slow_factor, self.slow_from_s)?;
        writeln!(text, "slow_until_s = {}", self.slow_until_s)?;
        writeln!(text, "slow_replicas = {}", self.slow_replicas)?;
        writeln!(text, "crash_at_s = {}\ncold_ms = {}", self.crash_at_s, self.cold_ms)?;
        writeln!(text, "batch_size_max = {}", self.batch_size_max)?;
        writeln!(text, "batch_window_ms = {}", self.batch_window_ms)?;
        writeln!(text, "step_fixed_ms = {}", self.step_fixed_ms)?;
        writeln!(text, "step_per_call_ms = {}", self.step_per_call_ms)?;
        writeln!(text, "step_takes_work = {}", self.step_takes_work)?;
        self.steps.fmt(text)?;
        self.phases.iter().try_for_each(|phase| phase.fmt(text))
    }
}

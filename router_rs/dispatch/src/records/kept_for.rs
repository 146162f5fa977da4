//! Why a call was kept.

/// Why a call was kept; the first that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptFor {
    Failed,
    Asked,
    Slow,
    Sampled,
    /// All calls are kept, as long as somebody wants them.
    All,
}

impl KeptFor {
    /// One word, for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sampled => "sampled",
            Self::Asked => "asked",
            Self::Failed => "failed",
            Self::Slow => "slow",
            Self::All => "all",
        }
    }
}

//! The reason why a call was recorded.

/// The reason why a call was recorded; the first that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptFor {
    Failed,
    Asked,
    Slow,
    Sampled,
    /// All calls are recorded, while a reader asks for it.
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

//! Who may call what: rules over paths, certificate names and bearer tokens.
//!
//! Pure like the rest of the crate: whoever asks has checked the certificate and hashed the
//! token. Asked once per request, before anything is looked up or forwarded.

mod name;
mod path;
mod policy;

pub use name::{NameError, NamePattern};
pub use path::{PathError, PathPattern};
pub use policy::{AccessRequest, AccessRule, Policy, PolicyError, Ruling, TokenHash, is_same_hash};

//! Who may call what: rules over paths, applications, certificate names and bearer tokens.
//!
//! Pure like the rest of the crate: whoever asks has checked the certificate and hashed the
//! token. Asked before anything is looked up or forwarded, and where rules name applications once
//! more about what the request leads to.

mod name;
mod path;
mod policy;

pub use name::{NameError, NamePattern};
pub use path::{PathError, PathPattern};
pub use policy::{
    AccessRequest, AccessRule, Policy, PolicyError, Reach, Ruling, TokenHash, is_same_hash,
};

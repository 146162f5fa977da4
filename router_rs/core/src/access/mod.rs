//! Who may call what: rules over paths, applications, certificate names and bearer tokens.
//!
//! Pure like the rest of the crate: the caller has verified the certificate and hashed the token.
//! The rules are checked before anything is looked up or forwarded. If rules name applications,
//! they are checked once more when the application is known.

mod name;
mod path;
mod policy;

pub use name::{NameError, NamePattern};
pub use path::{PathError, PathPattern};
pub use policy::{
    AccessRequest, AccessRule, Policy, PolicyError, Reach, Ruling, TokenHash, is_same_hash,
};

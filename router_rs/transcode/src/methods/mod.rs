//! Methods and their messages, from the descriptors of deployments.

mod editions;
mod files;
mod imports;
mod method;
mod options;
pub(super) mod routes;
pub(super) mod rule;
mod table;
pub(super) mod template;

pub(super) use method::Method;
pub use table::{MethodSource, MethodTable, Sees, ServiceRoute};

//! One set of descriptor files: read once, however many tables have it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use prost_reflect::{DescriptorPool, MethodDescriptor};

use super::Method;

/// `google.protobuf.MethodOptions.IdempotencyLevel.NO_SIDE_EFFECTS`
const NO_SIDE_EFFECTS: i32 = 1;

/// What a set of files is, whoever brings it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Digest([u8; 32]);

impl Digest {
    pub(super) fn of(files: &[Bytes]) -> Self {
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        for file in files {
            context.update(&file.len().to_le_bytes());
            context.update(file);
        }
        let digest = context.finish();
        Self(digest.as_ref().try_into().expect("invariant: SHA-256 has 32 bytes"))
    }
}

/// The services of a set, by full name; their methods by name.
#[derive(Debug, Default)]
pub(super) struct FileSet {
    pub services: HashMap<Box<str>, Vec<(Box<str>, Arc<Method>)>>,
    pub problems: Vec<String>,
}

impl FileSet {
    /// Reads a set; one that is broken has no services, and its problem says why.
    pub(super) fn read(files: &[Bytes]) -> Self {
        match pool(files) {
            Ok(pool) => Self::of_pool(&pool),
            Err(problem) => Self { problems: vec![problem], ..Self::default() },
        }
    }

    fn of_pool(pool: &DescriptorPool) -> Self {
        let mut set = Self::default();
        for service in pool.services() {
            let methods = service
                .methods()
                .map(|method| (method.name().into(), Arc::new(Method::new(&method))))
                .collect();
            set.services.insert(service.full_name().into(), methods);
        }
        set
    }
}

/// All files in one pool, in whatever order they come.
fn pool(files: &[Bytes]) -> Result<DescriptorPool, String> {
    // The set as one message: field 1 of `FileDescriptorSet`, which keeps options that prost's
    // own types do not know (`google.api.http`).
    let set = RawFileSet { files: files.to_vec() };
    DescriptorPool::decode(&*set.encode_to_vec())
        .map_err(|error| format!("its descriptors cannot be used: {error}"))
}

#[derive(Clone, PartialEq, Message)]
struct RawFileSet {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    files: Vec<Bytes>,
}

/// What of `google.protobuf.MethodOptions` is read here.
#[derive(Clone, PartialEq, Message)]
struct MethodOptions {
    #[prost(int32, optional, tag = "34")]
    idempotency_level: Option<i32>,
}

pub(super) fn has_no_side_effects(method: &MethodDescriptor) -> bool {
    options(method).idempotency_level == Some(NO_SIDE_EFFECTS)
}

fn options(method: &MethodDescriptor) -> MethodOptions {
    // They were read once already, so they can be read again.
    MethodOptions::decode(&*method.options().encode_to_vec()).unwrap_or_default()
}

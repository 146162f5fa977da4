//! One set of descriptor files: parsed once, however many tables use it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use prost_reflect::DescriptorPool;

use super::editions;
use super::imports;
use super::method::Method;
use super::rule::{self, Route};

/// Identifies a set of files by its content.
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

/// The services of a set, by full name.
#[derive(Debug, Default)]
pub(super) struct FileSet {
    pub services: HashMap<Box<str>, Vec<Described>>,
    pub problems: Vec<String>,
}

/// A method and its own paths.
#[derive(Debug)]
pub(super) struct Described {
    pub name: Box<str>,
    pub method: Arc<Method>,
    pub routes: Vec<Arc<Route>>,
}

impl FileSet {
    /// Parses a set. Of a broken one those files are used that do not need the broken ones, and its
    /// problem has the reason.
    pub(super) fn read(files: &[Bytes]) -> Self {
        match pool(files) {
            Ok(pool) => Self::of_pool(&pool),
            Err(problem) => {
                let mut set = Self::of_pool(&pool_of_good(files));
                set.problems.insert(0, problem);
                set
            }
        }
    }

    fn of_pool(pool: &DescriptorPool) -> Self {
        let mut set = Self::default();
        for service in pool.services() {
            let methods = service.methods().map(|descriptor| {
                let method = Arc::new(Method::new(&descriptor));
                let mut routes = Vec::new();
                for route in rule::routes(&descriptor, &method) {
                    match route {
                        Ok(route) => routes.push(Arc::new(route)),
                        Err(problem) => {
                            set.problems.push(format!("{}: {problem}", method.path));
                        }
                    }
                }
                Described { name: descriptor.name().into(), method, routes }
            });
            let methods = methods.collect();
            set.services.insert(service.full_name().into(), methods);
        }
        set
    }
}

/// All files in one pool, in any order.
fn pool(files: &[Bytes]) -> Result<DescriptorPool, String> {
    let unusable = |problem: String| format!("its descriptors cannot be used: {problem}");
    let files = files.iter().map(editions::in_proto2).collect::<Result<Vec<_>, _>>();
    let files = files.map_err(unusable)?;
    imports::check(&files).map_err(unusable)?;
    // The set as one message: field 1 of `FileDescriptorSet`, which keeps options that prost's own
    // types lack (`google.api.http`).
    let set = RawFileSet { files };
    let encoded = set.encode_to_vec();
    // A defect in one deployment's descriptors must not affect the table of all others.
    std::panic::catch_unwind(|| DescriptorPool::decode(&*encoded))
        .map_err(|_| unusable("they are not consistent".to_owned()))?
        .map_err(|error| unusable(error.to_string()))
}

/// Like [`pool`], without the files that cannot be used, and those that import them.
fn pool_of_good(files: &[Bytes]) -> DescriptorPool {
    let mut pool = DescriptorPool::new();
    let mut left: Vec<Bytes> =
        files.iter().filter_map(|file| editions::in_proto2(file).ok()).collect();
    left.retain(|file| imports::check(std::slice::from_ref(file)).is_ok());
    loop {
        let count = left.len();
        left.retain(|file| {
            let mut next = pool.clone();
            let added = std::panic::catch_unwind(move || {
                next.decode_file_descriptor_proto(&**file).map(|()| next)
            });
            match added {
                Ok(Ok(next)) => pool = next,
                Ok(Err(_)) | Err(_) => return true,
            }
            false
        });
        if left.len() == count {
            return pool;
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct RawFileSet {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    files: Vec<Bytes>,
}

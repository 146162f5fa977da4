//! All methods that deployments describe, by path.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use super::files::{Described, Digest, FileSet};
use super::method::Method;
use super::routes::Routes;
use crate::near::nearest;

/// A service that a deployment registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRoute {
    /// Full name, `pkg.Service`.
    pub name: String,
    /// Names of its methods; `None`: not known here, and the replica answers for missing ones.
    pub methods: Option<Vec<String>>,
}

/// Whether the access rules let the caller make a call of this path. All other paths are hidden
/// from the caller, and are never named to it.
pub type Sees<'a> = &'a dyn Fn(&str) -> bool;

/// One deployment's services and the files that describe them.
#[derive(Clone, Copy, Debug)]
pub struct MethodSource<'a> {
    pub application: &'a str,
    pub deployment: &'a str,
    /// Only these get methods here: files may describe other services too.
    pub services: &'a [ServiceRoute],
    /// Serialized `google.protobuf.FileDescriptorProto`s, in any order.
    pub files: &'a [Bytes],
}

/// All methods that are described, by path. Never changed once made.
#[derive(Debug, Default)]
pub struct MethodTable {
    by_path: HashMap<Box<str>, SmallVec<[Provided; 1]>>,
    /// The names of their services.
    services: BTreeSet<Box<str>>,
    rest: Routes,
    /// Used to find unchanged sets again.
    sets: HashMap<Digest, Arc<FileSet>>,
    problems: Vec<Problem>,
}

/// Why descriptors of a deployment, or parts of them, are not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub application: Arc<str>,
    pub deployment: Box<str>,
    /// One sentence.
    pub text: String,
}

/// A method as one application has it.
#[derive(Clone, Debug)]
struct Provided {
    application: Arc<str>,
    method: Arc<Method>,
}

// === impl MethodTable ===

impl MethodTable {
    /// The next table. Sets of files that this table has need not be parsed again.
    ///
    /// A set that cannot be used leaves its deployment without methods here: see
    /// [`MethodTable::problems`].
    #[must_use]
    pub fn next<'a>(&self, sources: impl IntoIterator<Item = MethodSource<'a>>) -> Self {
        let mut table = Self::default();
        for source in sources {
            if source.files.is_empty() {
                continue;
            }
            let digest = Digest::of(source.files);
            let known = table.sets.get(&digest).or_else(|| self.sets.get(&digest)).cloned();
            let set = known.unwrap_or_else(|| Arc::new(FileSet::read(source.files)));
            table.add(source, &set);
            table.sets.insert(digest, set);
        }
        table
    }

    /// Why descriptors of one deployment, or parts of them, are not used.
    pub fn problems(&self, application: &str, deployment: &str) -> Vec<String> {
        let of_it = self.problems.iter().filter(|problem| {
            *problem.application == *application && *problem.deployment == *deployment
        });
        of_it.map(|problem| problem.text.clone()).collect()
    }

    /// Methods that have paths of their own (`google.api.http`).
    pub fn rest(&self) -> &Routes {
        &self.rest
    }

    /// The method of `/pkg.Service/Method` in `application`, or in the first application that has
    /// one.
    pub fn find(&self, path: &str, application: Option<&str>) -> Option<&Arc<Method>> {
        let provided = self.by_path.get(path)?;
        let named = application
            .and_then(|name| provided.iter().find(|provided| &*provided.application == name));
        named.or_else(|| provided.first()).map(|provided| &provided.method)
    }

    /// The path that was most likely meant by an unknown `/pkg.Service/Method`: that of another
    /// method of the service, or of one of a service with a similar name. Never one that the caller
    /// may not see.
    pub fn near(&self, path: &str, sees: Sees<'_>) -> Option<&str> {
        let (service, method) = split(path)?;
        let is_seen = |service: &str| !self.seen_of(service, sees).is_empty();
        let service = match self.services.get(service).filter(|service| is_seen(service)) {
            Some(service) => service,
            None => near_service(service, &self.services, &is_seen)?,
        };
        let method = nearest(method, self.seen_of(service, sees), &|_| true)?;
        self.by_path.get_key_value(&*format!("/{service}/{method}")).map(|(path, _)| &**path)
    }

    /// The methods of the service in `/pkg.Service/Method` that the caller may see, in order;
    /// empty: it is not described.
    pub fn of_service(&self, path: &str, sees: Sees<'_>) -> Vec<&str> {
        let Some((wanted, _)) = split(path) else { return Vec::new() };
        let mut methods = self.seen_of(wanted, sees);
        methods.sort_unstable();
        methods
    }

    fn seen_of(&self, wanted: &str, sees: Sees<'_>) -> Vec<&str> {
        if !self.services.contains(wanted) {
            return Vec::new();
        }
        let known = self.by_path.keys().filter_map(|path| Some((path, split(path)?)));
        let of_it = known.filter(|(path, (service, _))| *service == wanted && sees(path));
        of_it.map(|(_, (_, method))| method).collect()
    }

    fn add(&mut self, source: MethodSource<'_>, set: &FileSet) {
        let application: Arc<str> = source.application.into();
        let problem = |text: String| Problem {
            application: Arc::clone(&application),
            deployment: source.deployment.into(),
            text,
        };
        self.problems.extend(set.problems.iter().cloned().map(problem));
        for service in source.services {
            let Some(methods) = set.services.get(&*service.name) else { continue };
            for described in methods {
                let names = service.methods.as_ref();
                if names.is_none_or(|names| names.iter().any(|name| **name == *described.name)) {
                    let problems = self.add_method(&application, described);
                    self.problems.extend(problems.into_iter().map(problem));
                }
            }
        }
    }

    /// Returns why some of its paths are not used.
    fn add_method(&mut self, application: &Arc<str>, described: &Described) -> Vec<String> {
        let method = Arc::clone(&described.method);
        let provided = Provided { application: Arc::clone(application), method };
        self.by_path.entry(described.method.path.clone()).or_default().push(provided);
        self.services.extend(split(&described.method.path).map(|(service, _)| service.into()));
        let routes = described.routes.iter();
        let added = routes.map(|route| self.rest.add(application, route));
        let problems = added.filter_map(Result::err);
        problems.map(|problem| format!("{}: {problem}", described.method.path)).collect()
    }
}

/// Service and method of a path.
fn split(path: &str) -> Option<(&str, &str)> {
    let (service, method) = path.strip_prefix('/')?.rsplit_once('/')?;
    (!service.is_empty() && !method.is_empty()).then_some((service, method))
}

/// By the whole name, or without packages: leaving them out is the most common mistake.
fn near_service<'a>(
    wanted: &str,
    known: &'a BTreeSet<Box<str>>,
    is_seen: Sees<'_>,
) -> Option<&'a str> {
    fn short(name: &str) -> &str {
        name.rsplit('.').next().unwrap_or(name)
    }
    let names = || known.iter().map(|name| &**name);
    let seen_of_short = |near: &str| names().find(|name| short(name) == near && is_seen(name));
    nearest(wanted, names(), is_seen).or_else(|| {
        let is_near = |near: &str| seen_of_short(near).is_some();
        nearest(short(wanted), names().map(short), &is_near).and_then(seen_of_short)
    })
}

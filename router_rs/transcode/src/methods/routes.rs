//! Finds the route for a path: literals before `*`, `*` before `**`.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use http::Method as HttpMethod;
use percent_encoding::percent_decode_str;
use smallvec::SmallVec;

use super::rule::Route;
use super::template::{Segment, Variable};

/// All routes, as a tree of their segments.
#[derive(Debug, Default)]
pub struct Routes {
    root: Node,
}

#[derive(Debug, Default)]
struct Node {
    literals: HashMap<Box<str>, Node>,
    one: Option<Box<Node>>,
    /// Routes that end here, and those that end here with `**`.
    leaves: Vec<Leaf>,
    rest: Vec<Leaf>,
}

#[derive(Debug)]
struct Leaf {
    application: Arc<str>,
    route: Arc<Route>,
}

/// The result of matching a path.
#[derive(Debug)]
pub enum Matched<'a> {
    Route(&'a Arc<Route>, Captured),
    /// The path has routes, but only for these other HTTP methods.
    OtherMethods(String),
    Nothing,
}

/// The values of the route's variables, in their order, decoded; or a sentence: one is not UTF-8.
pub(crate) type Captured = Result<Vec<String>, String>;

type Segments<'a> = SmallVec<[&'a str; 8]>;

impl Routes {
    /// # Errors
    /// A sentence: the application has another method with this path, which stays.
    pub(super) fn add(&mut self, application: &Arc<str>, route: &Arc<Route>) -> Result<(), String> {
        let mut node = &mut self.root;
        let mut is_rest = false;
        for segment in &route.template.segments {
            match segment {
                Segment::Literal(literal) => {
                    node = node.literals.entry(literal.clone()).or_default();
                }
                Segment::One => node = node.one.get_or_insert_default(),
                Segment::Rest => is_rest = true,
            }
        }
        let leaves = if is_rest { &mut node.rest } else { &mut node.leaves };
        let taken = leaves.iter().find(|leaf| {
            leaf.application == *application
                && leaf.route.http_method == route.http_method
                && leaf.route.template.verb == route.template.verb
                // Two deployments of one application may serve the same service.
                && leaf.route.method.path != route.method.path
        });
        if let Some(taken) = taken {
            return Err(format!("its path is that of {} already", taken.route.method.path));
        }
        let application = Arc::clone(application);
        leaves.push(Leaf { application, route: Arc::clone(route) });
        Ok(())
    }

    /// The route of a request in `application`, or in the first application that has one.
    pub fn find(
        &self,
        http_method: &HttpMethod,
        path: &str,
        application: Option<&str>,
    ) -> Matched<'_> {
        let mut others = BTreeSet::new();
        for (segments, verb) in readings(path) {
            let mut found: Option<&Leaf> = None;
            self.root.visit(&segments, 0, &mut |leaves| {
                let fitting =
                    leaves.iter().filter(|leaf| leaf.route.template.verb.as_deref() == verb);
                for leaf in fitting {
                    if leaf.route.http_method.as_ref().is_some_and(|method| method != http_method) {
                        others.extend(leaf.route.http_method.as_ref().map(HttpMethod::as_str));
                        continue;
                    }
                    let is_named = application.is_some_and(|name| *leaf.application == *name);
                    if found.is_none() || is_named {
                        found = Some(leaf);
                    }
                    if is_named {
                        break;
                    }
                }
                found.is_some()
            });
            if let Some(leaf) = found {
                return Matched::Route(&leaf.route, capture(&leaf.route, &segments));
            }
        }
        if others.is_empty() {
            return Matched::Nothing;
        }
        Matched::OtherMethods(others.into_iter().collect::<Vec<_>>().join(", "))
    }

    /// The HTTP methods of a path, separated by commas; empty: it has no route.
    pub fn allowed(&self, path: &str) -> String {
        let mut methods = BTreeSet::new();
        for (segments, verb) in readings(path) {
            self.root.visit(&segments, 0, &mut |leaves| {
                let fitting =
                    leaves.iter().filter(|leaf| leaf.route.template.verb.as_deref() == verb);
                let names = fitting.map(|leaf| leaf.route.http_method.as_ref());
                methods.extend(names.map(|method| method.map_or("*", HttpMethod::as_str)));
                false
            });
        }
        methods.into_iter().collect::<Vec<_>>().join(", ")
    }
}

impl Node {
    /// Calls `visit` for the leaves that match, the most specific first, until it returns true.
    fn visit<'a>(
        &'a self,
        segments: &[&str],
        at: usize,
        visit: &mut impl FnMut(&'a [Leaf]) -> bool,
    ) -> bool {
        let Some(segment) = segments.get(at) else {
            return (!self.leaves.is_empty() && visit(&self.leaves))
                || (!self.rest.is_empty() && visit(&self.rest));
        };
        let literal = decode(segment).ok().and_then(|text| self.literals.get(&*text));
        if literal.is_some_and(|node| node.visit(segments, at + 1, visit)) {
            return true;
        }
        let one = self.one.as_ref().filter(|_| !segment.is_empty());
        if one.is_some_and(|node| node.visit(segments, at + 1, visit)) {
            return true;
        }
        !self.rest.is_empty() && visit(&self.rest)
    }
}

/// The ways to interpret a path: with the end of its last segment as a verb, and without.
fn readings(path: &str) -> impl Iterator<Item = (Segments<'_>, Option<&str>)> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let with_verb = path
        .rsplit_once(':')
        .filter(|(_, verb)| !verb.is_empty() && !verb.contains('/'))
        .map(|(path, verb)| (path.split('/').collect(), Some(verb)));
    with_verb.into_iter().chain([(path.split('/').collect(), None)])
}

fn capture(route: &Route, segments: &[&str]) -> Captured {
    let template = &route.template;
    let value = |variable: &Variable| {
        let is_open = template.segments[variable.end - 1] == Segment::Rest;
        let end = if is_open { segments.len() } else { variable.end };
        let values = &segments[variable.start.min(end)..end];
        if variable.is_single(template) {
            return decode(values[0]).map(Cow::into_owned);
        }
        // In a value of several segments an encoded slash stays encoded: it is not a separator. Its
        // letter stays as it was sent (google/api/http.proto).
        let kept = values.iter().map(|value| decode_but_slashes(value));
        Ok(kept.collect::<Result<Vec<String>, String>>()?.join("/"))
    };
    template.variables.iter().map(value).collect()
}

fn decode(segment: &str) -> Result<Cow<'_, str>, String> {
    let decoded = percent_decode_str(segment).decode_utf8();
    decoded.map_err(|_| format!("the path has {segment:?}, which is not UTF-8"))
}

fn decode_but_slashes(segment: &str) -> Result<String, String> {
    let mut decoded = String::with_capacity(segment.len());
    let mut rest = segment;
    while let Some(at) = rest.find("%2F").into_iter().chain(rest.find("%2f")).min() {
        let (before, after) = rest.split_at(at);
        let (slash, after) = after.split_at("%2F".len());
        decoded += &decode(before)?;
        decoded += slash;
        rest = after;
    }
    decoded += &decode(rest)?;
    Ok(decoded)
}

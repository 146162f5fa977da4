//! Checks descriptors before prost-reflect parses them: it panics on a file with an unknown syntax,
//! and never ends if files import each other in a cycle.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use prost::Message;
use prost_reflect::prost_types::FileDescriptorProto;

/// Checks a set of serialized files.
///
/// # Errors
/// A sentence with the file and the error.
pub(super) fn check(files: &[Bytes]) -> Result<(), String> {
    let files = files.iter().map(|file| FileDescriptorProto::decode(file.clone()));
    let files = files.collect::<Result<Vec<_>, _>>();
    let files = files.map_err(|error| format!("one of them is none: {error}"))?;
    for file in &files {
        if let Some(syntax) = file.syntax.as_deref()
            && !matches!(syntax, "proto2" | "proto3")
        {
            let name = file.name();
            return Err(format!("{name}: the syntax {syntax:?} is unknown here"));
        }
    }
    let circle = circle(&files);
    circle.map_or(Ok(()), |name| Err(format!("{name}: it imports itself, or others that do")))
}

/// A file in an import cycle, the first one by name.
fn circle(files: &[FileDescriptorProto]) -> Option<&str> {
    let mut unresolved = HashMap::<&str, HashSet<&str>>::new();
    for file in files {
        let imports = unresolved.entry(file.name()).or_default();
        imports.extend(file.dependency.iter().map(String::as_str));
    }
    loop {
        let known: HashSet<&str> = unresolved.keys().copied().collect();
        unresolved.retain(|_, imports| !imports.is_disjoint(&known));
        if unresolved.len() == known.len() {
            return known.into_iter().min();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, imports: &[&str], syntax: &str) -> Bytes {
        let file = FileDescriptorProto {
            name: Some(name.to_owned()),
            dependency: imports.iter().map(|name| (*name).to_owned()).collect(),
            public_dependency: (0..imports.len() as i32).collect(),
            syntax: (!syntax.is_empty()).then(|| syntax.to_owned()),
            ..FileDescriptorProto::default()
        };
        file.encode_to_vec().into()
    }

    #[test]
    fn files_that_import_each_other_in_order_are_fine() {
        let (a, b) = (file("a", &["b", "c", "not here"], "proto3"), file("b", &["c"], "proto2"));
        assert_eq!(Ok(()), check(&[a, b, file("c", &[], "")]));
        assert_eq!(Ok(()), check(&[]));
    }

    #[test]
    fn what_would_end_the_process_is_refused_by_name() {
        for (files, part) in [
            (vec![file("a", &["a"], "proto3")], "a: it imports itself"),
            (vec![file("b", &["c"], ""), file("c", &["b"], "")], "b: it imports itself"),
            (vec![file("a", &[], "editions")], "a: the syntax \"editions\""),
            (vec![Bytes::from_static(&[0xff])], "one of them is none"),
        ] {
            let problem = check(&files).unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
    }
}

//! The methods and paths of a table, and its errors for broken sets.

use super::super::methods::routes::Matched;
use super::*;
use prost_reflect::prost_types::{
    FileDescriptorProto, MethodDescriptorProto, ServiceDescriptorProto,
};

fn found(table: &MethodTable, http_method: &str, path: &str) -> String {
    match table.rest().find(&http_method.parse().unwrap(), path, None) {
        Matched::Nothing => "-".into(),
        Matched::OtherMethods(allowed) => format!("allowed: {allowed}"),
        Matched::Route(route, captured) => {
            let name = route.method.path.rsplit('/').next().unwrap();
            format!("{name} {}", captured.map_or_else(|error| error, |found| found.join(" ")))
        }
    }
}

#[test]
fn paths_lead_to_methods_by_the_most_special_template() {
    let table = things();
    for (http_method, path, expected) in [
        ("POST", "/v1/echo", "Echo "),
        ("POST", "/v1/echo/a%20b:again", "Echo a b"),
        ("POST", "/v1/echo/a", "-"),
        ("PUT", "/v1/echo/inner", "Echo "),
        ("GET", "/v1/echo", "allowed: POST"),
        ("GET", "/v1/shelves/1/things/2", "Get shelves/1/things/2"),
        ("GET", "/v1/shelves/a%2Fb/things/%63", "Get shelves/a%2Fb/things/c"),
        ("GET", "/v1/shelves/a%2fb%2Fc%252f/things/2", "Get shelves/a%2fb%2Fc%2f/things/2"),
        ("GET", "/v1/shelves/1/things/", "-"),
        ("GET", "/v1/shelves//things/2", "-"),
        ("GET", "/v1/things/a%2Fb", "Get a/b"),
        ("GET", "/v1/things/a%2fb", "Get a/b"),
        ("GET", "/v1/files/%2f/%2F%2fa%20%2f", "Get %2f/%2F%2fa %2f"),
        ("GET", "/v1/things/a:b", "Get a:b"),
        ("GET", "/v1/things/%FF", r#"Get the path has "%FF", which is not UTF-8"#),
        ("GET", "/v1/files/a/%C3%28/c", r#"Get the path has "%C3%28", which is not UTF-8"#),
        ("GET", "/v1/%FF", "-"),
        ("GET", "/v1/things", "List "),
        ("GET", "/v1/things/", "-"),
        ("GET", "/v1/files", "Get "),
        ("GET", "/v1/files/a/b/c", "Get a/b/c"),
        ("DELETE", "/v1/things/a", "allowed: GET"),
        ("GET", "/", "-"),
        ("GET", "/v1/nothing", "-"),
    ] {
        assert_eq!(expected, found(&table, http_method, path), "{http_method} {path}");
    }
}

#[test]
fn methods_are_known_by_path_kind_and_effect() {
    let table = things();
    for (name, expected) in [
        ("Echo", (false, false, false)),
        ("Get", (false, false, true)),
        ("List", (false, true, false)),
        ("Collect", (true, false, false)),
        ("Chat", (true, true, false)),
    ] {
        let method = table.find(&format!("/things.v1.Things/{name}"), None).unwrap();
        let kinds = (method.client_streams, method.server_streams, method.has_no_side_effects);
        assert_eq!(expected, kinds, "{name}");
    }
    assert!(table.find("/things.v1.Things/Nothing", None).is_none());
}

#[test]
fn only_what_a_deployment_serves_is_found() {
    let files = files();
    let echo = ServiceRoute {
        name: "things.v1.Things".into(),
        methods: Some(vec!["Echo".into(), "NotThere".into()]),
    };
    let source =
        |services| MethodSource { application: "a", deployment: "D", services, files: &files };
    let echo = [echo];
    let table = MethodTable::default().next([source(&echo)]);
    assert!(table.find("/things.v1.Things/Echo", None).is_some());
    assert!(table.find("/things.v1.Things/Get", None).is_none());
    assert_eq!("-", found(&table, "GET", "/v1/things/a"));
    let nothing = MethodTable::default().next([source(&[])]);
    assert!(nothing.find("/things.v1.Things/Echo", None).is_none());
}

#[test]
fn an_unchanged_set_is_not_read_again() {
    let (first_files, services) = (files(), [service()]);
    let copies: Vec<Bytes> = first_files.iter().map(|file| Bytes::copy_from_slice(file)).collect();
    let source = |application, files| MethodSource {
        application,
        deployment: "D",
        services: &services,
        files,
    };
    let first = MethodTable::default().next([source("a", &first_files[..])]);
    let second = first.next([source("b", &copies[..]), source("c", &first_files[..])]);
    let path = "/things.v1.Things/Echo";
    let method = first.find(path, None).unwrap();
    assert!(std::sync::Arc::ptr_eq(method, second.find(path, None).unwrap()));
    assert!(std::sync::Arc::ptr_eq(method, second.find(path, Some("c")).unwrap()));
}

fn broken(files: Vec<Bytes>) -> String {
    let (good, services) = (super::files(), [service()]);
    let bad =
        MethodSource { application: "bad", deployment: "D", services: &services, files: &files };
    let good =
        MethodSource { application: "good", deployment: "D", services: &services, files: &good };
    let table = MethodTable::default().next([bad, good]);
    assert!(table.find("/things.v1.Things/Echo", Some("bad")).is_some(), "the good one is there");
    assert_eq!("Echo ", found(&table, "POST", "/v1/echo"));
    table.problems("bad", "D").join("; ")
}

#[test]
fn broken_sets_are_left_out_and_named() {
    let good = files();
    let missing_import = vec![good.last().unwrap().clone()];
    let garbage = vec![Bytes::from_static(b"\xff\xff\xff")];
    let unresolved = vec![Bytes::from(
        FileDescriptorProto {
            name: Some("x.proto".into()),
            service: vec![ServiceDescriptorProto {
                name: Some("S".into()),
                method: vec![MethodDescriptorProto {
                    name: Some("M".into()),
                    input_type: Some(".not.There".into()),
                    output_type: Some(".not.There".into()),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        }
        .encode_to_vec(),
    )];
    for files in [missing_import, garbage, unresolved] {
        let problem = broken(files);
        assert!(problem.starts_with("its descriptors cannot be used: "), "{problem}");
    }
}

#[test]
fn two_methods_with_one_path_are_named_and_the_first_stays() {
    // The same service under another name, so that its paths are taken.
    let other: Vec<Bytes> = files()
        .into_iter()
        .map(|file| {
            let text = String::from_utf8_lossy(&file).contains("things.v1");
            if !text {
                return file;
            }
            let mut proto = FileDescriptorProto::decode(&*file).unwrap();
            assert_eq!("Things", proto.service[0].name());
            proto.service[0].name = Some("Thingz".into());
            // prost's own type would lose the paths, so the name is changed in the bytes.
            let at = file.windows(8).position(|part| part == b"\x0a\x06Things").unwrap_or_default();
            let mut bytes = file.to_vec();
            bytes[at + 7] = b'z';
            assert_eq!(
                proto.service[0].name(),
                FileDescriptorProto::decode(&*bytes).unwrap().service[0].name()
            );
            bytes.into()
        })
        .collect();
    let (files, services) = (files(), [service()]);
    let other_services = [ServiceRoute { name: "things.v1.Thingz".into(), methods: None }];
    let first =
        MethodSource { application: "a", deployment: "D", services: &services, files: &files };
    let second = MethodSource {
        application: "a",
        deployment: "E",
        services: &other_services,
        files: &other,
    };
    let table = MethodTable::default().next([first, second]);
    assert!(table.find("/things.v1.Thingz/Echo", None).is_some());
    assert_eq!(Vec::<String>::new(), table.problems("a", "D"));
    let problems = table.problems("a", "E");
    assert_eq!(9, problems.len(), "{problems:#?}");
    assert_eq!(
        "/things.v1.Thingz/Echo: its path is that of /things.v1.Things/Echo already",
        problems[0]
    );
    let another = MethodSource { application: "b", ..second };
    let apart = MethodTable::default().next([first, another]);
    assert_eq!(Vec::<String>::new(), apart.problems("b", "E"));
}

proptest::proptest! {
    #[test]
    fn no_mutation_of_a_set_panics(at in 0_usize..20_000, value: u8, length in 0_usize..4) {
        let mut bytes = THINGS.to_vec();
        let at = at % bytes.len();
        let end = (at + length).min(bytes.len());
        bytes[at..end].fill(value);
        if length == 0 {
            bytes.truncate(at);
        }
        let files = Files::decode(&*bytes).map(|set| set.files).unwrap_or_default();
        let services = [service()];
        let source =
            MethodSource { application: "a", deployment: "D", services: &services, files: &files };
        let table = MethodTable::default().next([source]);
        let _matched = table.rest().find(&http::Method::GET, "/v1/shelves/1/things/2", None);
    }
}

#[test]
fn an_unknown_path_is_told_the_one_that_was_meant() {
    let table = things();
    for (path, expected) in [
        ("/things.v1.Things/Ehco", Some("/things.v1.Things/Echo")),
        ("/things.v1.Things/echo", Some("/things.v1.Things/Echo")),
        ("/things.v1.Thing/List", Some("/things.v1.Things/List")),
        ("/Things/List", Some("/things.v1.Things/List")),
        ("/things.v2.Tings/Lst", Some("/things.v1.Things/List")),
        ("/things.v1.Things/Delete", None),
        ("/entirely.Different/Echo", None),
        ("/things.v1.Things/", None),
        ("//Echo", None),
        ("/Echo", None),
        ("", None),
    ] {
        assert_eq!(expected, table.near(path, &|_| true), "{path}");
    }
}

//! Plain HTTP/1.1 against a server of a few lines that answers what it is told.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use clap::Parser;
use loadgen::drive::run;
use loadgen::options::Options;
use loadgen::report::Report;

/// Answers each request with its own body, after `GET` with `none`, on `/bad` with 500.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            std::thread::spawn(move || answer_all(socket.unwrap()));
        }
    });
    address
}

fn answer_all(socket: TcpStream) {
    let mut writer = socket.try_clone().unwrap();
    let mut reader = BufReader::new(socket);
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if reader.read_until(b'\n', &mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head
            .split("content-length: ")
            .nth(1)
            .map_or(0, |rest| rest.split("\r\n").next().unwrap().parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        if head.starts_with("get") {
            body = b"none".to_vec();
        }
        let status = if head.contains(" /bad ") { "500 Bad" } else { "200 OK" };
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", body.len());
        if writer.write_all(&[answer.as_bytes(), &body].concat()).is_err() {
            return;
        }
    }
}

fn report(path: &str, arguments: &[&str]) -> Report {
    let target = serve().to_string();
    let base = ["loadgen", "--target", &target, "--path", path, "--protocol", "http1"];
    let all = base.iter().chain(arguments).chain(&["--requests", "20", "--warmup-s", "0"]);
    run(&Options::try_parse_from(all).unwrap().plan().unwrap(), |_| {}).unwrap()
}

#[test]
fn posts_and_gets_are_answered_over_kept_connections() {
    let echo = ["--body", "{\"a\": 1}", "--expect-body", "{\"a\": 1}"];
    let kept = ["--in-flight", "4", "--connections", "4"];
    assert!(report("/x?y=1", &[&echo[..], &kept[..]].concat()).all_right());
    assert!(report("/x", &["--expect-body", "none"]).all_right());
    assert!(report("/x", &["--payload-bytes", "100000", "--expect-echo"]).all_right());
}

#[test]
fn wrong_answers_are_counted() {
    assert!(!report("/bad", &["--body", "1"]).all_right());
    assert!(!report("/x", &["--body", "1", "--expect-body", "2"]).all_right());
    assert!(!report("/x", &["--payload-bytes", "2", "--expect-body", "2"]).all_right());
}

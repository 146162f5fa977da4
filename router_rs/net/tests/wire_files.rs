//! Files as answers: through the ingress over the wire, read by threads of the server.

mod front_support;
#[allow(dead_code)] // its own part, as in every test file
mod http_support;
#[allow(unused_imports)] // as above
mod server_support;
mod support;
mod wire_support;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use front_support::Http1;
use http_support::{finish, send, start_response};
use router_net::FilePart;
use router_net::grpc::Code;
use router_net::io::RegularFile;
use router_net::link::{Command, Mailbox};
use router_net::server::{FILE_EXTRA_BYTES, ServedCall};
use support::until;
use wire_support::one_app;

const BYTES: usize = 3_000_000;

/// A file that is removed with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> (Self, Vec<u8>) {
        let path = std::env::temp_dir().join(format!("pyserve-{name}-{}", std::process::id()));
        let content: Vec<u8> = (0..BYTES).map(|at| (at / 1000) as u8).collect();
        std::fs::File::create(&path).expect("a folder").write_all(&content).expect("room");
        (Self(path), content)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _is_gone = std::fs::remove_file(&self.0);
    }
}

fn send_file(served_call: &Arc<ServedCall>, scratch: &Scratch, offset: usize, length: usize) {
    let file = RegularFile::open(&scratch.0).expect("it is there");
    served_call.link().begin_write(length + FILE_EXTRA_BYTES);
    let part = FilePart::new(file, offset as u64, length as u64);
    send(served_call, Command::File(part));
}

#[tokio::test]
async fn parts_of_each_size_come_whole() {
    let (scratch, content) = Scratch::new("parts");
    for (offset, length) in [(0, BYTES), (1, 0), (5, 1), (100, 65_537), (2_000_000, 1_000_000)] {
        let (mut fixture, front) = one_app();
        let mut client = Http1::connect(&front).await;
        client.get("/app").await;
        let (served_call, _) = fixture.next_call().await;
        start_response(&served_call, 200, &[]);
        send_file(&served_call, &scratch, offset, length);
        finish(&served_call, Code::Ok, "", &[]);
        let whole = client.reply().await.body;
        assert!(whole == content[offset..offset + length], "{offset}, {length}");
        assert!(served_call.link().is_writable() && served_call.file_error().is_none());
        front.settle().await;
    }
}

#[tokio::test]
async fn the_writer_learns_that_a_file_is_shorter() {
    let (scratch, _) = Scratch::new("shorter");
    let (mut fixture, front) = one_app();
    let mut client = Http1::connect(&front).await;
    client.get("/app").await;
    let (served_call, _) = fixture.next_call().await;
    start_response(&served_call, 200, &[]);
    send_file(&served_call, &scratch, BYTES - 100_000, 200_000);
    until("the failure", || served_call.file_error().is_some()).await;
    assert!(served_call.file_error().expect("just seen").to_string().contains("3000000"));
    until("the writer may go on", || served_call.link().is_writable()).await;
    drop(client);
    front.settle().await;
}

//! How a connection begins: both sides send a nonce and prove the mesh token, in one round trip.
//!
//! ```text
//! client   MAGIC, version: u8, nonce: 16 bytes
//! server   MAGIC, version: u8, length of the rest: u16, replica's id (u8 length and bytes),
//!          nonce: 16 bytes, proof (the rest)
//! client   length: u8, proof, whether a descriptor of shared memory comes with this byte: u8;
//!          calls may follow at once
//! ```
//!
//! The proofs are those of [`router_protocol::mesh::proof`]. A server of another version answers
//! with its own version, and closes. A server that does not accept the proof closes.

/// Its first byte begins neither an HTTP/1.1 request nor the preface of HTTP/2.
pub const MAGIC: [u8; 8] = *b"\0pyserve";

/// Must be raised with every change of the frames or of the list of names, so that two versions of
/// the mesh never misread each other: they use HTTP/2 then.
const VERSION: u8 = 2;

const NONCE_BYTES: usize = 16;

/// The client's last byte: the descriptor of an arena comes with it, or none does.
pub const ARENA: u8 = 1;
pub const NO_ARENA: u8 = 0;

/// The fixed first part of either side, up to the end of the server's length.
pub const HELLO_BYTES: usize = MAGIC.len() + 1 + NONCE_BYTES;
pub const WELCOME_PREFIX_BYTES: usize = MAGIC.len() + 1 + 2;

/// A server's answer to a client of another version.
pub const OTHER_VERSION: [u8; WELCOME_PREFIX_BYTES] = {
    let mut prefix = [0; WELCOME_PREFIX_BYTES];
    let mut at = 0;
    while at < MAGIC.len() {
        prefix[at] = MAGIC[at];
        at += 1;
    }
    prefix[at] = VERSION;
    prefix
};

/// A server's introduction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    pub replica_id: String,
    pub nonce: Vec<u8>,
    /// In the form of [`router_protocol::mesh::proof::replica_proof`].
    pub proof: String,
}

/// The first message of a client; `None` if the nonce is malformed.
pub fn hello(nonce: &[u8]) -> Option<[u8; HELLO_BYTES]> {
    let nonce: [u8; NONCE_BYTES] = nonce.try_into().ok()?;
    let mut hello = [0; HELLO_BYTES];
    hello[..MAGIC.len()].copy_from_slice(&MAGIC);
    hello[MAGIC.len()] = VERSION;
    hello[MAGIC.len() + 1..].copy_from_slice(&nonce);
    Some(hello)
}

/// The client's nonce; `None` if this is not a greeting of this version.
pub fn read_hello(hello: &[u8; HELLO_BYTES]) -> Option<&[u8]> {
    let is_ours = hello.starts_with(&MAGIC) && hello[MAGIC.len()] == VERSION;
    is_ours.then(|| &hello[MAGIC.len() + 1..])
}

/// The server's answer; `None` for an invalid id or proof.
pub fn welcome(said: &Welcome) -> Option<Vec<u8>> {
    let id = said.replica_id.as_bytes();
    let nonce: [u8; NONCE_BYTES] = said.nonce.as_slice().try_into().ok()?;
    let rest_bytes = 1 + id.len() + NONCE_BYTES + said.proof.len();
    let mut welcome = Vec::with_capacity(WELCOME_PREFIX_BYTES + rest_bytes);
    welcome.extend_from_slice(&MAGIC);
    welcome.push(VERSION);
    welcome.extend_from_slice(&u16::try_from(rest_bytes).ok()?.to_be_bytes());
    welcome.push(u8::try_from(id.len()).ok()?);
    welcome.extend_from_slice(id);
    welcome.extend_from_slice(&nonce);
    welcome.extend_from_slice(said.proof.as_bytes());
    Some(welcome)
}

/// The number of bytes after the fixed part of a server's answer; `None` if it is not of this
/// version.
pub fn welcome_rest_bytes(prefix: &[u8; WELCOME_PREFIX_BYTES]) -> Option<usize> {
    let [magic @ .., version, high, low] = prefix;
    let is_ours = *magic == MAGIC && *version == VERSION;
    is_ours.then(|| usize::from(u16::from_be_bytes([*high, *low])))
}

/// Parses the rest of the answer; `None` if it is malformed.
pub fn read_welcome(rest: &[u8]) -> Option<Welcome> {
    let (id_bytes, rest) = rest.split_first()?;
    let (id, rest) = rest.split_at_checked(usize::from(*id_bytes))?;
    let (nonce, proof) = rest.split_at_checked(NONCE_BYTES)?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    Some(Welcome { replica_id: text(id)?, nonce: nonce.to_vec(), proof: text(proof)? })
}

/// The client's second message; `None` if the proof is malformed.
pub fn claim(proof: &str) -> Option<Vec<u8>> {
    let length = u8::try_from(proof.len()).ok()?;
    Some([&[length], proof.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> Welcome {
        Welcome { replica_id: "app#d#1".to_owned(), nonce: vec![7; 16], proof: "ab".repeat(32) }
    }

    #[test]
    fn what_is_said_is_understood() {
        let hello = hello(&[9; 16]).expect("a nonce");
        assert_eq!(Some(&[9; 16][..]), read_hello(&hello));
        let welcome = welcome(&said()).expect("an id");
        let (prefix, rest) = welcome.split_at(WELCOME_PREFIX_BYTES);
        assert_eq!(Some(rest.len()), welcome_rest_bytes(prefix.try_into().expect("its length")));
        assert_eq!(Some(said()), read_welcome(rest));
        assert_eq!(Some(b"\x02ab".to_vec()), claim("ab"));
    }

    #[test]
    fn another_version_and_http_are_not() {
        let mut other = hello(&[9; 16]).expect("a nonce");
        other[MAGIC.len()] += 1;
        assert_eq!(None, read_hello(&other));
        let mut welcome = welcome(&said()).expect("an id");
        welcome[MAGIC.len()] += 1;
        let prefix = welcome[..WELCOME_PREFIX_BYTES].try_into().expect("its length");
        assert_eq!(None, welcome_rest_bytes(prefix));
        assert_eq!(None, welcome_rest_bytes(b"HTTP/1.1 40"));
        assert_eq!((&MAGIC[..], &[VERSION, 0, 0][..]), OTHER_VERSION.split_at(MAGIC.len()));
        assert!(MAGIC[0] == 0, "no method and no preface begins so");
    }

    #[test]
    fn what_is_cut_is_no_answer() {
        let welcome = welcome(&said()).expect("an id");
        let rest = &welcome[WELCOME_PREFIX_BYTES..];
        for length in 0..1 + said().replica_id.len() + NONCE_BYTES {
            assert_eq!(None, read_welcome(&rest[..length]));
        }
    }

    #[test]
    fn what_is_too_long_is_not_said() {
        assert_eq!(None, hello(&[0; 15]));
        assert_eq!(None, welcome(&Welcome { nonce: vec![0; 17], ..said() }));
        assert_eq!(None, welcome(&Welcome { replica_id: "r".repeat(256), ..said() }));
        assert_eq!(None, claim(&"p".repeat(256)));
    }
}

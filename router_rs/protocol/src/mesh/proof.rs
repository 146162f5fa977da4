//! The proofs that a router and a replica know the mesh token, without sending the token.

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

/// Each separates one use of the token from any other. None is a prefix of another one, since a
/// nonce may begin with any bytes.
const OF_ROUTER: &[u8] = b"pyserve-proof";
const OF_REPLICA: &[u8] = b"pyserve-replica-proof";

/// The length of a nonce. A replica proves nothing for other lengths: the length separates the
/// nonce from the id.
const NONCE_BYTES: usize = 16;

/// Fresh random bytes; `None`: the system has none.
pub fn nonce() -> Option<Vec<u8>> {
    let mut nonce = vec![0; NONCE_BYTES];
    SystemRandom::new().fill(&mut nonce).is_ok().then_some(nonce)
}

/// HMAC-SHA256 of the purpose, the nonce's bytes and the replica's id, in lower-case hex.
///
/// `nonce` is the decoded nonce, not its hex form.
pub fn proof(token: &[u8], nonce: &[u8], replica_id: &str) -> String {
    sign(token, OF_ROUTER, nonce, replica_id)
}

/// Like `proof`, from a replica for the router that has sent the nonce; `None`: the nonce is
/// malformed, or the token is empty.
pub fn replica_proof(token: &[u8], nonce: &[u8], replica_id: &str) -> Option<String> {
    let is_usable = nonce.len() == NONCE_BYTES && !token.is_empty();
    is_usable.then(|| sign(token, OF_REPLICA, nonce, replica_id))
}

/// Whether `claimed` is the proof, compared in constant time. An empty token trusts nobody.
pub fn verify(token: &[u8], nonce: &[u8], replica_id: &str, claimed: &str) -> bool {
    is_signed(token, OF_ROUTER, nonce, replica_id, claimed)
}

/// As `verify`, for `replica_proof`.
pub fn verify_replica(token: &[u8], nonce: &[u8], replica_id: &str, claimed: &str) -> bool {
    is_signed(token, OF_REPLICA, nonce, replica_id, claimed)
}

fn sign(token: &[u8], purpose: &[u8], nonce: &[u8], replica_id: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token);
    to_hex(hmac::sign(&key, &statement(purpose, nonce, replica_id)).as_ref())
}

fn is_signed(token: &[u8], purpose: &[u8], nonce: &[u8], replica_id: &str, claimed: &str) -> bool {
    let Some(claimed) = from_hex(claimed) else {
        return false;
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, token);
    let said = statement(purpose, nonce, replica_id);
    !token.is_empty() && hmac::verify(&key, &said, &claimed).is_ok()
}

/// Lower-case hex.
pub fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut hex = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        hex.push(char::from(DIGITS[usize::from(byte >> 4)]));
        hex.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    hex
}

/// The bytes that `hex` (either case) stands for; `None` if it is not hex.
pub fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        hex.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn statement(purpose: &[u8], nonce: &[u8], replica_id: &str) -> Vec<u8> {
    [purpose, nonce, replica_id.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_verifies_for_its_own_token_nonce_and_replica_only() {
        let claimed = proof(b"token", &[1, 2, 3], "replica-1");
        assert_eq!(64, claimed.len());
        assert!(verify(b"token", &[1, 2, 3], "replica-1", &claimed));
        assert!(!verify(b"other", &[1, 2, 3], "replica-1", &claimed));
        assert!(!verify(b"token", &[1, 2, 4], "replica-1", &claimed));
        assert!(!verify(b"token", &[1, 2, 3], "replica-2", &claimed));
        assert!(!verify(b"token", &[1, 2, 3], "replica-1", &claimed[1..]));
        assert!(!verify(b"token", &[1, 2, 3], "replica-1", "not hex"));
    }

    #[test]
    fn an_empty_token_verifies_nothing() {
        assert!(!verify(b"", b"nonce", "replica", &proof(b"", b"nonce", "replica")));
    }

    #[test]
    fn neither_side_can_show_the_proof_of_the_other() {
        let nonce = nonce().expect("random bytes");
        let of_replica = replica_proof(b"token", &nonce, "r").expect("usable");
        assert!(verify_replica(b"token", &nonce, "r", &of_replica));
        assert!(!verify_replica(b"other", &nonce, "r", &of_replica));
        assert!(!verify_replica(b"token", &nonce, "s", &of_replica));
        assert!(!verify(b"token", &nonce, "r", &of_replica));
        assert!(!verify_replica(b"token", &nonce, "r", &proof(b"token", &nonce, "r")));
        // If a peer could choose where a purpose ends, it could use one side's proof as the
        // other's.
        assert!(!OF_REPLICA.starts_with(OF_ROUTER));
    }

    #[test]
    fn a_replica_proves_nothing_for_what_is_no_nonce() {
        for nonce in [&[][..], &[0; 15], &[0; 17]] {
            assert_eq!(None, replica_proof(b"token", nonce, "r"));
        }
        assert_eq!(None, replica_proof(b"", &[0; 16], "r"));
    }

    #[test]
    fn hex_goes_both_ways() {
        assert_eq!("00ff1a", to_hex(&[0, 255, 26]));
        assert_eq!(Some(vec![0, 255, 26]), from_hex("00FF1a"));
        assert_eq!(None, from_hex("0"));
        assert_eq!(None, from_hex("zz"));
    }
}

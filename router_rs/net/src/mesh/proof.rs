//! The proof that a router knows the mesh token, without sending the token.

use ring::hmac;

/// Separates this use of the token from any other.
const PURPOSE: &[u8] = b"pyserve-proof";

/// HMAC-SHA256 of the purpose, the nonce's bytes and the replica's id, in lower-case hex.
///
/// `nonce` is the decoded nonce, not its hex form.
pub fn proof(token: &[u8], nonce: &[u8], replica_id: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token);
    to_hex(hmac::sign(&key, &statement(nonce, replica_id)).as_ref())
}

/// Whether `claimed` is the proof, compared in constant time. An empty token trusts nobody.
pub fn verify(token: &[u8], nonce: &[u8], replica_id: &str, claimed: &str) -> bool {
    let Some(claimed) = from_hex(claimed) else {
        return false;
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, token);
    !token.is_empty() && hmac::verify(&key, &statement(nonce, replica_id), &claimed).is_ok()
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

fn statement(nonce: &[u8], replica_id: &str) -> Vec<u8> {
    [PURPOSE, nonce, replica_id.as_bytes()].concat()
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
    fn hex_goes_both_ways() {
        assert_eq!("00ff1a", to_hex(&[0, 255, 26]));
        assert_eq!(Some(vec![0, 255, 26]), from_hex("00FF1a"));
        assert_eq!(None, from_hex("0"));
        assert_eq!(None, from_hex("zz"));
    }
}

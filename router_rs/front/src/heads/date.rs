//! The `date` of answers (RFC 9110, 6.6.1), which hyper adds for HTTP/1.1 only.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use http::header::DATE;
use http::{HeaderMap, HeaderValue};

/// A second since 1970, and its formatted text.
struct Written {
    second: u64,
    value: HeaderValue,
}

thread_local! {
    /// Formatting takes longer than everything else about a head, so it is done once a second.
    static LAST: RefCell<Option<Written>> = const { RefCell::new(None) };
}

/// Adds the current date to an answer whose origin did not set it.
pub(crate) fn add(headers: &mut HeaderMap) {
    headers.entry(DATE).or_insert_with(|| at(SystemTime::now()));
}

fn at(now: SystemTime) -> HeaderValue {
    // A clock before 1970 is not set at all.
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LAST.with_borrow_mut(|last| {
        if let Some(written) = last.as_ref().filter(|written| written.second == second) {
            return written.value.clone();
        }
        let value = HeaderValue::from_str(&httpdate::fmt_http_date(now))
            .expect("invariant: a date is visible ASCII");
        *last = Some(Written { second, value: value.clone() });
        value
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_date_changes_with_its_second() {
        let second = UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (now, expected) in [
            (second, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (second + Duration::from_millis(999), "Sun, 06 Nov 1994 08:49:37 GMT"),
            (second + Duration::from_secs(1), "Sun, 06 Nov 1994 08:49:38 GMT"),
            (second, "Sun, 06 Nov 1994 08:49:37 GMT"),
        ] {
            assert_eq!(expected, at(now));
        }
    }

    #[test]
    fn the_origins_date_stays() {
        let mut headers = HeaderMap::new();
        headers.insert(DATE, HeaderValue::from_static("of the origin"));
        add(&mut headers);
        let dates: Vec<_> = headers.get_all(DATE).iter().collect();
        assert_eq!(vec!["of the origin"], dates);
    }
}

//! The string forms of `google.protobuf.Timestamp`, `Duration` and `FieldMask`.

use std::fmt::Write;

const NANOS_PER_SECOND: u32 = 1_000_000_000;
/// `0001-01-01T00:00:00Z` and `9999-12-31T23:59:59Z`, in seconds since 1970.
const FIRST_SECOND: i64 = -62_135_596_800;
const LAST_SECOND: i64 = 253_402_300_799;
/// Ten thousand years, on either side.
const DURATION_SECONDS_MAX: i64 = 315_576_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Seconds, since 1970 or of a duration, and nanoseconds.
pub(super) type Time = (i64, i32);

/// Parses a time in RFC 3339, such as `2026-01-02T03:04:05.5Z`.
///
/// # Errors
/// A sentence with the error.
pub(super) fn read_timestamp(text: &str) -> Result<Time, String> {
    let wrong = || format!("{text:?} is no time such as \"2026-01-02T03:04:05Z\"");
    let mut rest = text;
    let mut number = |digits: usize, before: &str| -> Option<i64> {
        let (taken, left) = rest.strip_prefix(before)?.split_at_checked(digits)?;
        rest = left;
        taken.bytes().all(|byte| byte.is_ascii_digit()).then(|| taken.parse().ok())?
    };
    let day = [number(4, ""), number(2, "-"), number(2, "-")];
    let time = [number(2, "T"), number(2, ":"), number(2, ":")];
    let [Some(year), Some(month), Some(day)] = day else { return Err(wrong()) };
    let [Some(hour), Some(minute), Some(second)] = time else { return Err(wrong()) };
    if day < 1 || day > days_of(year, month) || hour > 23 || minute > 59 || second > 59 {
        return Err(wrong());
    }
    let (nanos, zone) = fraction(rest).ok_or_else(wrong)?;
    let offset_minutes = offset(zone).ok_or_else(wrong)?;
    let minutes = hour * 60 + minute - offset_minutes;
    let seconds = day_number(year, month, day) * SECONDS_PER_DAY + minutes * 60 + second;
    check_timestamp((seconds, nanos))
}

/// The time in UTC.
///
/// # Errors
/// A sentence: it has no such form.
pub(super) fn timestamp_text(time: Time) -> Result<String, String> {
    let (seconds, nanos) = check_timestamp(time)?;
    let (year, month, day) = date(seconds.div_euclid(SECONDS_PER_DAY));
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let mut text = format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}");
    put_fraction(&mut text, nanos.unsigned_abs());
    text.push('Z');
    Ok(text)
}

fn check_timestamp(time: Time) -> Result<Time, String> {
    let is_good = (FIRST_SECOND..=LAST_SECOND).contains(&time.0)
        && (0..NANOS_PER_SECOND as i32).contains(&time.1);
    is_good.then_some(time).ok_or_else(|| "a time is of the years 1 to 9999".to_owned())
}

/// Parses a number of seconds, such as `-1.5s`.
///
/// # Errors
/// A sentence with the error.
pub(super) fn read_duration(text: &str) -> Result<Time, String> {
    let wrong = || format!("{text:?} is no duration such as \"1.5s\"");
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).ok_or_else(wrong)?;
    let seconds: i64 = digits[..end].parse().map_err(|_| wrong())?;
    let (nanos, unit) = fraction(&digits[end..]).ok_or_else(wrong)?;
    if unit != "s" {
        return Err(wrong());
    }
    check_duration(if is_negative { (-seconds, -nanos) } else { (seconds, nanos) })
}

/// The number of seconds, followed by `s`.
///
/// # Errors
/// A sentence: it has no such form.
pub(super) fn duration_text(time: Time) -> Result<String, String> {
    let (seconds, nanos) = check_duration(time)?;
    let sign = if seconds < 0 || nanos < 0 { "-" } else { "" };
    let mut text = format!("{sign}{}", seconds.unsigned_abs());
    put_fraction(&mut text, nanos.unsigned_abs());
    text.push('s');
    Ok(text)
}

fn check_duration(time: Time) -> Result<Time, String> {
    let (seconds, nanos) = time;
    let is_mixed = (seconds > 0 && nanos < 0) || (seconds < 0 && nanos > 0);
    let is_good = seconds.abs_diff(0) <= DURATION_SECONDS_MAX.unsigned_abs()
        && nanos.unsigned_abs() < NANOS_PER_SECOND
        && !is_mixed;
    is_good.then_some(time).ok_or_else(|| {
        format!("a duration has at most {DURATION_SECONDS_MAX} seconds, and one sign")
    })
}

/// The nanoseconds at the beginning of a string, and the rest.
fn fraction(text: &str) -> Option<(i32, &str)> {
    let Some(digits) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    let nanos = digits[..end].parse::<u32>().ok().filter(|_| end <= 9)?;
    Some(((nanos * 10_u32.pow(9 - end as u32)) as i32, &digits[end..]))
}

/// None, three, six or nine digits.
fn put_fraction(text: &mut String, nanos: u32) {
    let written = match nanos {
        0 => Ok(()),
        _ if nanos.is_multiple_of(1_000_000) => write!(text, ".{:03}", nanos / 1_000_000),
        _ if nanos.is_multiple_of(1000) => write!(text, ".{:06}", nanos / 1000),
        _ => write!(text, ".{nanos:09}"),
    };
    written.expect("invariant: memory takes it");
}

/// `Z`, or hours and minutes east of it; in minutes.
fn offset(zone: &str) -> Option<i64> {
    if zone == "Z" {
        return Some(0);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone[1..].split_once(':')?;
    let two = |digits: &str| {
        let is_two = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<i64>().ok().filter(|_| is_two)
    };
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes))
}

/// The number of days in a month; 0: the month does not exist.
fn days_of(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(is_leap),
        1..=12 => 31,
        _ => 0,
    }
}

/// The day of a date, from 1970-01-01 on. (Years begin with March here, so that a leap day is the
/// last of its year: <https://howardhinnant.github.io/date_algorithms.html>)
fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The date of a day: the inverse of [`day_number`].
fn date(day_number: i64) -> (i64, i64, i64) {
    let shifted = day_number + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12 + 1;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// The name of a field in a `.proto`, from its name in JSON.
///
/// # Errors
/// A sentence: it is not a valid name.
pub(super) fn snake_of_camel(path: &str) -> Result<String, String> {
    let mut snake = String::with_capacity(path.len() + 4);
    for letter in path.chars() {
        match letter {
            '_' => return Err(format!("{path:?} has a \"_\": write names as JSON has them")),
            'A'..='Z' => snake.extend(['_', letter.to_ascii_lowercase()]),
            _ => snake.push(letter),
        }
    }
    Ok(snake)
}

/// The name of a field in JSON, from its name in a `.proto`.
///
/// # Errors
/// A sentence: it would not survive a round trip.
pub(super) fn camel_of_snake(path: &str) -> Result<String, String> {
    let mut camel = String::with_capacity(path.len());
    let mut is_behind = false;
    for letter in path.chars() {
        match letter {
            'a'..='z' if is_behind => camel.push(letter.to_ascii_uppercase()),
            'A'..='Z' => return Err(format!("the mask {path:?} has an upper case letter")),
            _ if is_behind => {
                return Err(format!("the mask {path:?} has a \"_\" before no letter"));
            }
            '_' => {}
            _ => camel.push(letter),
        }
        is_behind = letter == '_';
    }
    if is_behind {
        return Err(format!("the mask {path:?} ends with \"_\""));
    }
    Ok(camel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_of_ten_thousand_years_is_written_and_read() {
        // A step that meets each hour, minute, second and day of the year.
        for seconds in (FIRST_SECOND..=LAST_SECOND).step_by(7_654_321).chain([LAST_SECOND]) {
            let text = timestamp_text((seconds, 5)).unwrap();
            assert_eq!(Ok((seconds, 5)), read_timestamp(&text), "{text}");
        }
        for (time, text) in [
            ((0, 0), "1970-01-01T00:00:00Z"),
            ((-1, 999_999_999), "1969-12-31T23:59:59.999999999Z"),
            ((951_782_400, 500_000_000), "2000-02-29T00:00:00.500Z"),
            ((FIRST_SECOND, 0), "0001-01-01T00:00:00Z"),
            ((LAST_SECOND, 1000), "9999-12-31T23:59:59.000001Z"),
        ] {
            assert_eq!(Ok(text), timestamp_text(time).as_deref());
            assert_eq!(Ok(time), read_timestamp(text));
        }
        assert!(timestamp_text((LAST_SECOND + 1, 0)).is_err());
        assert!(timestamp_text((0, -1)).is_err());
    }

    #[test]
    fn times_of_other_zones_are_the_same_moments() {
        let utc = read_timestamp("2024-02-29T23:30:00Z");
        assert!(utc.is_ok());
        for text in ["2024-03-01T01:00:00+01:30", "2024-02-29T15:30:00-08:00"] {
            assert_eq!(utc, read_timestamp(text));
        }
        for text in [
            "",
            "2024-01-02",
            "2024-01-02T03:04:05",
            "2024-01-02t03:04:05Z",
            "2024-01-02T03:04:05z",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-02T24:00:00Z",
            "2024-01-02T03:04:60Z",
            "2024-1-2T03:04:05Z",
            "2024-01-02T03:04:05.Z",
            "2024-01-02T03:04:05.1234567890Z",
            "2024-01-02T03:04:05+0100",
            "2024-01-02T03:04:05+é",
            "0000-01-01T00:00:00Z",
            "0001-01-01T00:00:00+00:01",
            "2024-01-02T03:04:05ZZ",
            "2024-é",
        ] {
            assert!(read_timestamp(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_have_one_sign_and_no_rest() {
        for (time, text) in [
            ((0, 0), "0s"),
            ((0, -500_000_000), "-0.500s"),
            ((-1, -1), "-1.000000001s"),
            ((315_576_000_000, 0), "315576000000s"),
            ((3, 1000), "3.000001s"),
        ] {
            assert_eq!(Ok(text), duration_text(time).as_deref());
            assert_eq!(Ok(time), read_duration(text));
        }
        for text in [
            "",
            "s",
            "1",
            "1.s",
            ".5s",
            "1.1234567890s",
            "--1s",
            "+1s",
            "1s ",
            "1m",
            "é",
            "315576000001s",
            "99999999999999999999s",
        ] {
            assert!(read_duration(text).is_err(), "{text}");
        }
        for time in [(1, -1), (-1, 1), (i64::MIN, 0), (0, i32::MIN), (0, 1_000_000_000)] {
            assert!(duration_text(time).is_err(), "{time:?}");
        }
    }

    #[test]
    fn names_in_masks_go_both_ways_or_not_at_all() {
        for (snake, camel) in
            [("", ""), ("a", "a"), ("a_bc.d_e", "aBc.dE"), ("_a", "A"), ("a1", "a1")]
        {
            assert_eq!(Ok(camel), camel_of_snake(snake).as_deref());
            assert_eq!(Ok(snake), snake_of_camel(camel).as_deref());
        }
        assert!(snake_of_camel("a_b").is_err());
        for snake in ["aB", "a_", "a__b", "a_1", "a_.b"] {
            assert!(camel_of_snake(snake).is_err(), "{snake}");
        }
    }
}

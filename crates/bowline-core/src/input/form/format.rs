//! The string formats of elicitation schemas.

/// Returns whether the text has the format. Unknown formats match every text.
pub(super) fn fits(format: &str, text: &str) -> bool {
    match format {
        "email" => is_email(text),
        "uri" => is_uri(text),
        "date" => is_date(text),
        "date-time" => is_date_time(text),
        _ => true,
    }
}

/// Accepts a mailbox without comments and quoted strings.
fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else {
        return false;
    };
    let is_part = |text: &str, is_fine: fn(char) -> bool| {
        !text.is_empty()
            && text
                .split('.')
                .all(|it| !it.is_empty() && it.chars().all(is_fine))
    };
    let is_local = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c);
    let is_label = |c: char| c.is_alphanumeric() || c == '-';
    local.len() <= 64 && is_part(local, is_local) && is_part(domain, is_label)
}

/// Accepts an absolute URI: a scheme, a colon, and characters that need no percent-encoding.
fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let is_fine = |c: char| c.is_ascii_graphic() && !"<>\"{}|\\^`".contains(c);
    is_scheme && !rest.is_empty() && rest.chars().all(is_fine)
}

fn is_date(text: &str) -> bool {
    let Some([year, month, day]) = numbers(text, [4, 2, 2], "-") else {
        return false;
    };
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day)
}

/// Accepts a `date-time` of RFC 3339.
fn is_date_time(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else {
        return false;
    };
    let Some(at) = time.find(['Z', 'z', '+', '-']) else {
        return false;
    };
    let (time, zone) = time.split_at(at);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let is_zone = match zone.split_at(1) {
        ("+" | "-", offset) => {
            numbers(offset, [2, 2], ":").is_some_and(|[hour, minute]| hour < 24 && minute < 60)
        }
        (_, rest) => rest.is_empty(),
    };
    // A minute may have a leap second.
    let is_time = numbers(time, [2, 2, 2], ":")
        .is_some_and(|[hour, minute, second]| hour < 24 && minute < 60 && second <= 60);
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    is_date(date) && is_time && is_fraction && is_zone
}

/// Parses numbers of exactly these digits each, separated by `between`.
fn numbers<const N: usize>(text: &str, digits: [usize; N], between: &str) -> Option<[u32; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split(between);
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next()?;
        if part.len() != digits || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

//! `Content-Type` and `Accept`: what a body is, and what the client can read.

use ::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap};

/// Whether the body is declared to be JSON.
///
/// This is demanded strictly: a web page can post other types without asking the server first.
#[must_use]
pub fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return false;
    };
    let value = value.to_str().unwrap_or_default();
    essence(value).eq_ignore_ascii_case(JSON)
}

/// The kinds of answer that a client can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "an answer is one of these two and no other"
)]
pub struct Accepts {
    /// One JSON object.
    pub json: bool,
    /// A stream of events.
    pub events: bool,
}

impl Accepts {
    /// Reads `Accept`. A client that does not send it can read everything.
    #[must_use]
    pub fn read(headers: &HeaderMap) -> Self {
        let everything = Self {
            json: true,
            events: true,
        };
        match headers.get(ACCEPT) {
            None => return everything,
            // What the specification tells clients to send, word for word.
            Some(value) if value == USUAL => return everything,
            Some(_) => {}
        }
        let ranges = || {
            headers
                .get_all(ACCEPT)
                .iter()
                .filter_map(|value| value.to_str().ok())
                .flat_map(|value| value.split(','))
        };
        Self {
            json: accepts(JSON, ranges()),
            events: accepts(EVENTS, ranges()),
        }
    }

    /// Whether it can read no answer that there is.
    #[must_use]
    pub fn nothing(self) -> bool {
        !self.json && !self.events
    }
}

/// Whether the most specific of the ranges that include `media` wants it.
fn accepts<'a>(media: &str, ranges: impl Iterator<Item = &'a str>) -> bool {
    ranges
        .filter_map(|range| Some((specificity(essence(range), media)?, !is_unwanted(range))))
        .max()
        .is_some_and(|(_, wanted)| wanted)
}

fn specificity(range: &str, media: &str) -> Option<u8> {
    let (kind, _) = media.split_once('/')?;
    match range.split_once('/')? {
        _ if range.eq_ignore_ascii_case(media) => Some(2),
        (own, "*") if own.eq_ignore_ascii_case(kind) => Some(1),
        ("*", "*") => Some(0),
        _ => None,
    }
}

/// Whether the range has weight zero, which means "not this".
fn is_unwanted(range: &str) -> bool {
    range.split(';').skip(1).any(|parameter| {
        let Some((name, weight)) = parameter.split_once('=') else {
            return false;
        };
        name.trim().eq_ignore_ascii_case("q")
            && weight
                .trim()
                .parse::<f32>()
                .is_ok_and(|weight| weight == 0.0)
    })
}

/// The media type without its parameters.
fn essence(value: &str) -> &str {
    value.split(';').next().unwrap_or_default().trim()
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const USUAL: &str = "application/json, text/event-stream";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_must_be_declared_as_json() {
        for (value, json) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/json;charset=\"utf-8\"", true),
            ("text/plain", false),
            ("application/json-seq", false),
            ("application/jsonx", false),
            ("text/plain; a=application/json", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, value.parse().unwrap())]);

            assert_eq!(is_json(&headers), json, "{value}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }

    #[test]
    fn what_a_client_can_read_is_told_by_accept() {
        for (value, json, events) in [
            ("application/json, text/event-stream", true, true),
            ("text/event-stream,application/json;q=0.9", true, true),
            ("APPLICATION/JSON", true, false),
            ("text/event-stream", false, true),
            ("*/*", true, true),
            ("application/*", true, false),
            ("text/*;q=0.1", false, true),
            ("*/*, text/event-stream;q=0", true, false),
            ("application/json;q=0.000", false, false),
            ("text/html", false, false),
            ("", false, false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, value.parse().unwrap())]);

            assert_eq!(Accepts::read(&headers), Accepts { json, events }, "{value}");
        }
        assert!(!Accepts::read(&HeaderMap::new()).nothing());
    }

    #[test]
    fn accept_may_be_spread_over_several_headers() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT, "application/json".parse().unwrap());
        headers.append(ACCEPT, "text/event-stream".parse().unwrap());

        assert_eq!(
            Accepts::read(&headers),
            Accepts {
                json: true,
                events: true
            }
        );
    }
}

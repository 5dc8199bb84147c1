//! The `Content-Type` of a request body and the `Accept` header of the client.

use ::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap};

/// Returns whether `Content-Type` is `application/json`.
///
/// Required strictly: a web page can post some other types without a CORS preflight.
#[must_use]
pub fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return false;
    };
    let value = value.to_str().unwrap_or_default();
    essence(value).eq_ignore_ascii_case(JSON)
}

/// The media types that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_structs,
    reason = "a response has one of these two media types"
)]
pub struct AcceptedTypes {
    /// `application/json`
    pub json: bool,
    /// `text/event-stream`
    pub events: bool,
}

impl AcceptedTypes {
    /// Reads `Accept`. Without the header, both types are accepted.
    #[must_use]
    pub fn read(headers: &HeaderMap) -> Self {
        let both = Self {
            json: true,
            events: true,
        };
        match headers.get(ACCEPT) {
            None => return both,
            // Fast path: the value that the specification requires clients to send.
            Some(value) if value == BOTH_TYPES => return both,
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

    /// Returns whether the client accepts neither type.
    #[must_use]
    pub fn is_empty(self) -> bool {
        !self.json && !self.events
    }
}

/// Returns whether the most specific range that includes `media` has a weight above zero.
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

/// Returns whether the range has weight zero (`q=0`), which excludes the type.
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

/// Returns the media type without its parameters.
fn essence(value: &str) -> &str {
    value.split(';').next().unwrap_or_default().trim()
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const BOTH_TYPES: &str = "application/json, text/event-stream";

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
    fn accept_determines_the_accepted_types() {
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

            assert_eq!(
                AcceptedTypes::read(&headers),
                AcceptedTypes { json, events },
                "{value}"
            );
            let is_empty = AcceptedTypes::read(&headers).is_empty();
            assert_eq!(is_empty, !(json || events), "{value}");
        }
        assert!(!AcceptedTypes::read(&HeaderMap::new()).is_empty());
    }

    #[test]
    fn accept_may_be_spread_over_several_headers() {
        let mut headers = HeaderMap::new();
        headers.append(ACCEPT, "application/json".parse().unwrap());
        headers.append(ACCEPT, "text/event-stream".parse().unwrap());

        assert_eq!(
            AcceptedTypes::read(&headers),
            AcceptedTypes {
                json: true,
                events: true
            }
        );
    }
}

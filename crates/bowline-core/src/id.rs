//! Comparison and generation of JSON-RPC request ids, used by the mux.
//!
//! Some peers echo the id `7` as `"7"`. Outgoing calls are therefore looked up by [`CorrelationKey`], in which both
//! are equal. The [`RequestId`] is always sent as the caller wrote it.

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline_types::{ProgressToken, RequestId};

/// The key under which an outgoing call is found by its id or progress token.
///
/// A string that is a canonical decimal in the range of `i64` equals that number; any other string equals only
/// itself.
///
/// # Examples
///
/// ```
/// use bowline_core::CorrelationKey;
/// use bowline_types::RequestId;
///
/// let key = |id: RequestId| CorrelationKey::from(&id);
/// assert_eq!(key("7".into()), key(7.into()));
/// assert_ne!(key("007".into()), key(7.into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CorrelationKey(NormalizedId);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum NormalizedId {
    Number(i64),
    Text(Arc<str>),
}

impl CorrelationKey {
    fn of_text(text: &Arc<str>) -> Self {
        Self(
            canonical_decimal(text)
                .map_or_else(|| NormalizedId::Text(text.clone()), NormalizedId::Number),
        )
    }
}

impl From<&RequestId> for CorrelationKey {
    fn from(id: &RequestId) -> Self {
        match id {
            RequestId::Number(number) => Self(NormalizedId::Number(*number)),
            RequestId::Text(text) => Self::of_text(text),
        }
    }
}

impl From<&ProgressToken> for CorrelationKey {
    fn from(token: &ProgressToken) -> Self {
        match token {
            ProgressToken::Number(number) => Self(NormalizedId::Number(*number)),
            ProgressToken::Text(text) => Self::of_text(text),
        }
    }
}

/// Returns the other id with the same [`CorrelationKey`], if there is one: `"7"` for `7` and vice versa.
#[must_use]
pub fn alternate_id(id: &RequestId) -> Option<RequestId> {
    match id {
        RequestId::Number(number) => Some(RequestId::Text(number.to_string().into())),
        RequestId::Text(text) => canonical_decimal(text).map(RequestId::Number),
    }
}

/// A generator of request ids, for calls whose caller did not supply one: 1, 2, 3, …, skipping ids in use. With a
/// [prefix](Self::set_prefix) they are `"prefix.1"`, `"prefix.2"`, ….
#[derive(Debug, Default)]
pub struct RequestIdGenerator {
    last: i64,
    prefix: Option<Arc<str>>,
    /// Numbers above `last` that a late response may still carry.
    avoided: BTreeSet<i64>,
}

impl RequestIdGenerator {
    /// Puts a prefix and a dot before the number of each id, for peers that several processes send requests to.
    pub fn set_prefix(&mut self, prefix: Arc<str>) {
        self.prefix = Some(prefix);
    }

    /// Returns the next id for which `is_taken` returns `false`.
    pub fn next_id(&mut self, is_taken: impl Fn(&CorrelationKey) -> bool) -> RequestId {
        loop {
            self.last += 1;
            if let Some(prefix) = &self.prefix {
                let id = RequestId::Text(format!("{prefix}.{}", self.last).into());
                if !is_taken(&CorrelationKey::from(&id)) {
                    return id;
                }
                continue;
            }
            let avoided = self.avoided.remove(&self.last);
            if !avoided && !is_taken(&CorrelationKey(NormalizedId::Number(self.last))) {
                return RequestId::Number(self.last);
            }
        }
    }

    /// Excludes the number of an abandoned call: its response may still arrive, and would settle a new call with the
    /// same id.
    pub fn avoid(&mut self, key: &CorrelationKey) {
        if let NormalizedId::Number(number) = key.0
            && number > self.last
        {
            self.avoided.insert(number);
            if self.avoided.len() > MAX_AVOIDED {
                self.avoided.pop_last(); // the largest number would be generated last
            }
        }
    }
}

/// Parses `-?(0|[1-9][0-9]*)` in the range of `i64`; returns `None` for any other text, such as `007` or `+7`.
fn canonical_decimal(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    match digits {
        [b'0'] if text.len() == 1 => Some(0),
        // The parser accepts digits only after the first one.
        [b'1'..=b'9', ..] => text.parse().ok(),
        _ => None,
    }
}

const MAX_AVOIDED: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: impl Into<RequestId>) -> CorrelationKey {
        CorrelationKey::from(&id.into())
    }

    #[test]
    fn canonical_decimals_equal_their_numbers() {
        for number in [0, 7, -7, i64::MAX, i64::MIN] {
            assert_eq!(key(number), key(number.to_string()));
            assert_eq!(
                alternate_id(&number.into()),
                Some(number.to_string().into())
            );
        }
    }

    #[test]
    fn any_other_text_is_opaque() {
        for text in [
            "007",
            "+7",
            " 7",
            "7 ",
            "1_000",
            "-0",
            "-",
            "",
            "7.0",
            "9223372036854775808",
            "٧",
        ] {
            assert_eq!(key(text), CorrelationKey(NormalizedId::Text(text.into())));
            assert_eq!(alternate_id(&text.into()), None);
        }
    }

    #[test]
    fn the_generator_skips_ids_in_use() {
        let mut id_generator = RequestIdGenerator::default();
        let taken = key("3");

        let generated = [(); 3].map(|()| id_generator.next_id(|key| *key == taken));

        assert_eq!(generated, [1, 2, 4].map(RequestId::from));
    }

    #[test]
    fn a_prefix_is_part_of_every_generated_id() {
        let mut id_generator = RequestIdGenerator::default();
        id_generator.set_prefix("a7".into());
        let taken = key("a7.2");

        let generated = [(); 2].map(|()| id_generator.next_id(|key| *key == taken));

        assert_eq!(generated, ["a7.1", "a7.3"].map(RequestId::from));
    }

    #[test]
    fn the_generator_skips_an_avoided_id_once() {
        let mut id_generator = RequestIdGenerator::default();
        id_generator.next_id(|_| false);
        for avoided in ["2", "x", "1"] {
            id_generator.avoid(&key(avoided));
        }

        assert_eq!(id_generator.next_id(|_| false), 3.into());
        assert!(id_generator.avoided.is_empty());
    }

    #[test]
    fn avoided_ids_are_bounded() {
        let mut id_generator = RequestIdGenerator::default();

        (1..5000)
            .rev()
            .for_each(|number| id_generator.avoid(&key(number)));

        assert_eq!(id_generator.avoided.len(), MAX_AVOIDED);
        assert!(id_generator.avoided.contains(&1));
    }
}

//! How ids are compared: verbatim on the wire, coerced when we look for a call of our own.
//!
//! Some peers echo `7` back as `"7"`. Our own calls therefore live in one coerced domain, in which both
//! are the same [`CorrelationKey`]; what travels is always the [`RequestId`] as it was written.

use std::collections::BTreeSet;
use std::sync::Arc;

use bowline_types::{ProgressToken, RequestId};

/// The form of an id or progress token under which calls of ours are found.
///
/// Text that is a canonical decimal in the range of `i64` is the number it spells; all other text is
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
pub struct CorrelationKey(Coerced);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Coerced {
    Number(i64),
    Text(Arc<str>),
}

impl CorrelationKey {
    fn of_text(text: &Arc<str>) -> Self {
        Self(canonical_decimal(text).map_or_else(|| Coerced::Text(text.clone()), Coerced::Number))
    }
}

impl From<&RequestId> for CorrelationKey {
    fn from(id: &RequestId) -> Self {
        match id {
            RequestId::Number(number) => Self(Coerced::Number(*number)),
            RequestId::Text(text) => Self::of_text(text),
        }
    }
}

impl From<&ProgressToken> for CorrelationKey {
    fn from(token: &ProgressToken) -> Self {
        match token {
            ProgressToken::Number(number) => Self(Coerced::Number(*number)),
            ProgressToken::Text(text) => Self::of_text(text),
        }
    }
}

/// The other id with the same [`CorrelationKey`], if there is one: `"7"` for `7` and the reverse.
#[must_use]
pub fn other_spelling(id: &RequestId) -> Option<RequestId> {
    match id {
        RequestId::Number(number) => Some(RequestId::Text(number.to_string().into())),
        RequestId::Text(text) => canonical_decimal(text).map(RequestId::Number),
    }
}

/// Makes ids for calls whose caller did not choose one: 1, 2, 3, …, skipping what is taken.
#[derive(Debug, Default)]
pub struct Minter {
    last: i64,
    /// Numbers still ahead that a late answer may name.
    avoided: BTreeSet<i64>,
}

impl Minter {
    /// The next number that `is_taken` does not claim.
    pub fn mint(&mut self, is_taken: impl Fn(&CorrelationKey) -> bool) -> RequestId {
        loop {
            self.last += 1;
            let avoided = self.avoided.remove(&self.last);
            if !avoided && !is_taken(&CorrelationKey(Coerced::Number(self.last))) {
                return RequestId::Number(self.last);
            }
        }
    }

    /// Keeps the number of a call that was given up from being minted: its answer may be under way, and
    /// would be taken for the answer to the new call.
    pub fn avoid(&mut self, key: &CorrelationKey) {
        if let Coerced::Number(number) = key.0
            && number > self.last
        {
            self.avoided.insert(number);
            if self.avoided.len() > MOST_AVOIDED {
                self.avoided.pop_last(); // minting comes to the others first
            }
        }
    }
}

/// Reads `-?(0|[1-9][0-9]*)` in the range of `i64`, and nothing else.
fn canonical_decimal(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    match digits {
        [b'0'] if text.len() == 1 => Some(0),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => text.parse().ok(),
        _ => None,
    }
}

const MOST_AVOIDED: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: impl Into<RequestId>) -> CorrelationKey {
        CorrelationKey::from(&id.into())
    }

    #[test]
    fn canonical_decimals_are_the_numbers_they_spell() {
        for number in [0, 7, -7, i64::MAX, i64::MIN] {
            assert_eq!(key(number), key(number.to_string()));
            assert_eq!(
                other_spelling(&number.into()),
                Some(number.to_string().into())
            );
        }
    }

    #[test]
    fn everything_else_is_opaque_text() {
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
            assert_eq!(key(text), CorrelationKey(Coerced::Text(text.into())));
            assert_eq!(other_spelling(&text.into()), None);
        }
    }

    #[test]
    fn minting_skips_what_is_taken() {
        let mut minter = Minter::default();
        let taken = key("3");

        let minted = [(); 3].map(|()| minter.mint(|key| *key == taken));

        assert_eq!(minted, [1, 2, 4].map(RequestId::from));
    }

    #[test]
    fn minting_skips_what_a_late_answer_may_name_once() {
        let mut minter = Minter::default();
        minter.mint(|_| false);
        for avoided in ["2", "x", "1"] {
            minter.avoid(&key(avoided));
        }

        assert_eq!(minter.mint(|_| false), 3.into());
        assert!(minter.avoided.is_empty());
    }

    #[test]
    fn what_is_avoided_is_bounded() {
        let mut minter = Minter::default();

        (1..5000)
            .rev()
            .for_each(|number| minter.avoid(&key(number)));

        assert_eq!(minter.avoided.len(), MOST_AVOIDED);
        assert!(minter.avoided.contains(&1));
    }
}

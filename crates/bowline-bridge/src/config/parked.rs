//! The settings of parked calls: their form, and the key that seals their states.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bowline::client::ServerConfig;
use serde_json::Value;

use super::error::ConfigError;

/// How a modern client gets a call back that a legacy server asks about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParkedCallForm {
    /// As an `input_required` result: the client makes the call again, with the answers.
    #[default]
    Retry,
    /// As a task, if the request is a tool call and declares the tasks extension: the client reads the questions with
    /// `tasks/get`, and answers with `tasks/update`. The task lives at most as long as the process.
    Task,
}

impl ParkedCallForm {
    pub(super) fn read(value: &Value) -> Result<Self, ConfigError> {
        match value.as_str() {
            Some("retry") => Ok(Self::Retry),
            Some("task") => Ok(Self::Task),
            _ => Err(ConfigError::new("expected \"retry\" or \"task\"")),
        }
    }
}

/// The key that seals what clients keep of parked calls: 32 bytes in base64, or as 64 hexadecimal digits. `${NAME}` is
/// replaced by an environment variable.
#[derive(Clone, PartialEq, Eq)]
pub struct StateKey(String);

impl StateKey {
    /// Creates a key from its text, in which variables are not replaced yet.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the 32 bytes of a key in base64, or of 64 hexadecimal digits; `None` if the text is neither.
    ///
    /// # Examples
    ///
    /// ```
    /// use bowline_bridge::config::StateKey;
    ///
    /// assert_eq!(StateKey::decode(&"07".repeat(32)), Some([7; 32]));
    /// assert_eq!(StateKey::decode("short"), None);
    /// ```
    #[must_use]
    pub fn decode(text: &str) -> Option<[u8; 32]> {
        parse(text)
    }

    pub(super) fn read(value: &Value) -> Result<Self, ConfigError> {
        super::reader::text(value).map(Self)
    }

    /// Replaces variables, and returns the key.
    pub(crate) fn expand(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<[u8; 32], String> {
        let text = ServerConfig::expand(&self.0, &variable)
            .map_err(|error| format!("bridge.stateKey: {error}"))?;
        parse(&text).ok_or_else(|| {
            "bridge.stateKey: expected 32 bytes in base64, or as 64 hexadecimal digits".to_owned()
        })
    }
}

fn parse(text: &str) -> Option<[u8; 32]> {
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let digits = text.as_bytes().chunks_exact(2);
        let bytes: Option<Vec<u8>> = digits
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok())
            .collect();
        return bytes?.try_into().ok();
    }
    let url_safe = || URL_SAFE_NO_PAD.decode(text.trim_end_matches('='));
    let bytes = STANDARD.decode(text).or_else(|_| url_safe()).ok()?;
    bytes.try_into().ok()
}

impl fmt::Debug for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_base64_or_hexadecimal_and_may_be_a_variable() {
        let key =
            |text: &str| StateKey::new(text).expand(|name| (name == "K").then(|| "07".repeat(32)));

        assert_eq!(key("${K}").unwrap(), [7; 32]);
        assert_eq!(key(&STANDARD.encode([250; 32])).unwrap(), [250; 32]);
        assert_eq!(key(&URL_SAFE_NO_PAD.encode([250; 32])).unwrap(), [250; 32]);
        for wrong in [
            "",
            "short",
            &"+1".repeat(32),
            &"é".repeat(32),
            &"7".repeat(63),
            "${UNSET}",
        ] {
            assert!(key(wrong).unwrap_err().contains("stateKey"), "{wrong}");
        }
        assert!(!format!("{:?}", StateKey::new("secret")).contains("secret"));
    }
}

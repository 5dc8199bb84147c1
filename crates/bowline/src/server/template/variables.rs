//! The values of the variables of a URI template.

use std::collections::BTreeMap;
use std::str::FromStr;

use bowline_types::{ErrorCode, RpcError};

/// The values of the variables of a URI template, by name.
///
/// # Examples
///
/// ```
/// use bowline::server::{UriTemplate, Variables};
///
/// let mut variables = Variables::default();
/// variables.set("city", "São Paulo");
/// let template = UriTemplate::parse("weather://{city}")?;
/// assert_eq!(template.expand(&variables), "weather://S%C3%A3o%20Paulo");
/// # Ok::<(), bowline::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, VariableValue>);

/// The value of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a template has single values and lists only"
)]
pub enum VariableValue {
    /// A single value.
    Text(String),
    /// The values of a variable with the `*` modifier.
    List(Vec<String>),
}

impl Variables {
    /// Returns the text of a variable; `None` if it is missing or a list.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name)? {
            VariableValue::Text(text) => Some(text),
            VariableValue::List(_) => None,
        }
    }

    /// Returns the texts of a list in order, the one text of a single value, or none if the variable is missing.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let texts = match self.0.get(name) {
            Some(VariableValue::Text(text)) => std::slice::from_ref(text),
            Some(VariableValue::List(texts)) => texts,
            None => &[],
        };
        texts.iter().map(String::as_str)
    }

    /// Parses the text of a variable, for example as a number.
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_PARAMS`] if the variable is missing or cannot be parsed.
    pub fn parse<T: FromStr>(&self, name: &str) -> Result<T, RpcError> {
        let parsed = self.text(name).and_then(|text| text.parse().ok());
        parsed.ok_or_else(|| {
            let why = format!("variable `{name}` of the URI is missing or invalid");
            RpcError::new(ErrorCode::INVALID_PARAMS, why)
        })
    }

    /// Sets a variable to a single value.
    pub fn set(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.0.insert(name.into(), VariableValue::Text(text.into()));
    }

    /// Appends a text to a list. Replaces a single value.
    pub fn push(&mut self, name: impl Into<String>, text: impl Into<String>) {
        let value = self
            .0
            .entry(name.into())
            .or_insert(VariableValue::List(Vec::new()));
        match value {
            VariableValue::List(texts) => texts.push(text.into()),
            VariableValue::Text(_) => *value = VariableValue::List(vec![text.into()]),
        }
    }

    /// Returns the variables that have a value, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &VariableValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns whether no variable has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

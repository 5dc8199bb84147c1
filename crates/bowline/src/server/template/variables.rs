//! What the variables of a template stand for.

use std::collections::BTreeMap;
use std::str::FromStr;

use bowline_types::{ErrorCode, RpcError};

/// The values of a template's variables, by name.
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
pub struct Variables(BTreeMap<String, Value>);

/// What one variable stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::exhaustive_enums,
    reason = "a template has single values and lists, and nothing else"
)]
pub enum Value {
    /// One text.
    Text(String),
    /// Several, of a variable with a `*`.
    List(Vec<String>),
}

impl Variables {
    /// The text of a variable, if it has one and is no list.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.0.get(name)? {
            Value::Text(text) => Some(text),
            Value::List(_) => None,
        }
    }

    /// The texts of a variable, in their order; one, if it is no list, and none, if it is missing.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let texts = match self.0.get(name) {
            Some(Value::Text(text)) => std::slice::from_ref(text),
            Some(Value::List(texts)) => texts,
            None => &[],
        };
        texts.iter().map(String::as_str)
    }

    /// The text of a variable as something else: a number, say.
    ///
    /// # Errors
    ///
    /// With invalid params, if the variable is missing or its text is no `T`.
    pub fn parse<T: FromStr>(&self, name: &str) -> Result<T, RpcError> {
        let parsed = self.text(name).and_then(|text| text.parse().ok());
        parsed.ok_or_else(|| {
            let why = format!("`{name}` is missing from the URI, or is not what it should be");
            RpcError::new(ErrorCode::INVALID_PARAMS, why)
        })
    }

    /// Gives a variable a text.
    pub fn set(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.0.insert(name.into(), Value::Text(text.into()));
    }

    /// Gives a variable one more text of a list.
    pub fn push(&mut self, name: impl Into<String>, text: impl Into<String>) {
        let value = self.0.entry(name.into()).or_insert(Value::List(Vec::new()));
        match value {
            Value::List(texts) => texts.push(text.into()),
            Value::Text(_) => *value = Value::List(vec![text.into()]),
        }
    }

    /// Every variable that has a value, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Whether no variable has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
